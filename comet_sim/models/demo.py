"""The demo models shipped in the package, and the held-out token windows of their tokenizer.

See data/*/SOURCE.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from comet_sim.models.checkpoint import Checkpoint, load_checkpoint

__all__ = ["DATA", "DEMO_NAMES", "HeldOut", "demo_folder", "heldout", "load_demo"]

DATA = Path(__file__).parent / "data"
DEMO_NAMES = ("opt-demo", "reglu-llama-demo")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Windows of 128 token ids of texts no demo model was trained on, each array (n, 128).

    `prose_documents` and `code_documents` name each window's document. Windows go round the documents, so the
    first ones come from different documents. `calibration` windows come from further documents, prose then
    code.
    `tokenizer_digest` is the SHA-256 of the tokenizer.json that made the ids.
    """

    prose: NDArray[np.int64]
    code: NDArray[np.int64]
    prose_documents: tuple[str, ...]
    code_documents: tuple[str, ...]
    calibration: NDArray[np.int64]
    tokenizer_digest: str

    def prompts(self, length: int = 16, each: int = 8) -> NDArray[np.int64]:
        """The first `length` tokens of the first `each` prose, then code, windows: (2 * each, length)."""
        return np.concatenate((self.prose[:each, :length], self.code[:each, :length]))


def demo_folder(name: str = "opt-demo") -> Path:
    """Folder of a shipped demo model."""
    return DATA / name


def load_demo(name: str = "opt-demo") -> Checkpoint:
    """Load a shipped demo model."""
    return load_checkpoint(demo_folder(name))


def heldout() -> HeldOut:
    """Load the held-out windows of the demo models' tokenizer."""
    with np.load(DATA / "heldout.npz", allow_pickle=False) as stored:
        return HeldOut(
            prose=stored["prose"].astype(np.int64),
            code=stored["code"].astype(np.int64),
            prose_documents=tuple(stored["prose_documents"].tolist()),
            code_documents=tuple(stored["code_documents"].tolist()),
            calibration=stored["calibration"].astype(np.int64),
            tokenizer_digest=str(stored["tokenizer_digest"]),
        )
