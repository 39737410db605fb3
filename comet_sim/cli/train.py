"""`comet-sim train-demo-model`: the demo models, trained again."""

from __future__ import annotations

import sys
from pathlib import Path

from comet_sim.errors import InputError
from comet_sim.models.demo import DEMO_NAMES

__all__ = ["train"]


def train(name: str, out: Path, steps: int | None, texts: list[Path], vocab: int | None, seed: int) -> None:
    """Train a demo model into a new folder, telling progress on stderr."""
    if name not in DEMO_NAMES:
        raise InputError(f"demo model {name!r}: not known, accepted: {', '.join(DEMO_NAMES)}")
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise InputError(
            f'training needs {error.name}, which is not installed: pip install "comet-sim[models]"'
        ) from None
    from tokenizers import Tokenizer

    from comet_sim.models.demo import demo_folder
    from comet_sim.models.train.corpus import read_documents
    from comet_sim.models.train.recipe import RECIPES
    from comet_sim.models.train.train import train_demo_model

    documents = read_documents(texts) if texts else None
    # The shipped tokenizer stays unless asked otherwise: the shipped held-out windows are token ids.
    kept = None if texts or vocab else Tokenizer.from_file(str(demo_folder(name) / "tokenizer.json"))
    train_demo_model(
        RECIPES[name],
        out,
        tell=_tell,
        documents=documents,
        tokenizer=kept,
        steps=steps,
        vocab=vocab,
        seed=seed,
    )
    print(f"run it with its path as the model: --set model={out}", file=sys.stderr)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
