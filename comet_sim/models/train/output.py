"""The folder a training leaves: a transformers checkpoint and what else is known of it."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from comet_sim.errors import InputError
from comet_sim.models.calibrate import calibrate, store_calibration
from comet_sim.models.checkpoint import load_checkpoint
from comet_sim.models.metadata import METADATA_FILE
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.train.corpus import DOMAINS, Corpus
from comet_sim.models.train.tokens import Streams, windows, write_tokenizer

__all__ = ["Trained", "new_folder", "versions", "write"]

_HELD_OUT, _CALIBRATION = 96, 16


@dataclass(frozen=True)
class Trained:
    """A trained transformers model, its tokenizer and documents, and each layer's head threshold (0: none)."""

    model: Any
    tokenizer: Tokenizer
    corpus: Corpus
    streams: Streams
    held_out: Streams
    thresholds: Sequence[float]


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a temporary folder beside `out` that becomes `out` at the end, or vanishes with an error.

    Raises InputError at once, before any work, if `out` holds something or cannot be made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out}: is there already; choose a new folder")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except FileExistsError:
        raise InputError(f"{out}: cannot be made: {out.parent} is no folder") from None
    except OSError as error:
        raise InputError(f"{out}: cannot be made: {error.strerror or error}") from None
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp's own is for the owner alone
        folder.replace(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide the result."""
    found = {"python": platform.python_version()}
    for name in ("comet-sim", "numpy", "torch", "transformers", "tokenizers"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "source tree"
    return found


def write(folder: Path, trained: Trained, length: int, log: dict[str, Any]) -> None:
    """Write all files into `folder`, float16 weights, calibrated; windows have `length` tokens."""
    from transformers.utils import logging as hf_logging

    quiet: Any = hf_logging
    quiet.disable_progress_bar()
    trained.model.half().save_pretrained(str(folder))
    write_tokenizer(trained.tokenizer, folder)
    calibration = _write_held_out(folder, trained, length)
    described: dict[str, Any] = {
        "source": "trained by comet-sim train-demo-model, see train_log.json and split.json"
    }
    if all(trained.thresholds):
        described["head_thresholds"] = [float(f"{value:.6g}") for value in trained.thresholds]
    _write_json(folder / METADATA_FILE, described)
    checkpoint = load_checkpoint(folder)
    result = calibrate(PlainDecoder(checkpoint.config, checkpoint.weights), calibration)
    store_calibration(folder / METADATA_FILE, result)
    _write_json(folder / "train_log.json", log)
    _write_json(folder / "split.json", trained.corpus.record())


def _write_held_out(folder: Path, trained: Trained, length: int) -> NDArray[np.int64]:
    """Write held-out windows in the shipped file's form; calibration windows are of the training texts."""
    cut = {domain: windows(trained.held_out.get(domain, ()), length, _HELD_OUT) for domain in DOMAINS}
    calibration = np.concatenate(
        [windows(trained.streams.get(domain, ()), length, _CALIBRATION)[0] for domain in DOMAINS]
    )
    digest = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    np.savez_compressed(
        folder / "heldout.npz",
        prose=cut["prose"][0].astype(np.uint16),
        code=cut["code"][0].astype(np.uint16),
        prose_documents=np.array(cut["prose"][1], dtype=np.str_),
        code_documents=np.array(cut["code"][1], dtype=np.str_),
        calibration=calibration.astype(np.uint16),
        tokenizer_digest=np.array(digest),
    )
    return calibration


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
