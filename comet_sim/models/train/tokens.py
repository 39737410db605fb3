"""The byte-level BPE tokenizer of the demo models, and texts as token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from comet_sim.errors import InputError
from comet_sim.models.train.corpus import DOMAINS, Document

__all__ = ["SPECIAL", "Streams", "build_tokenizer", "encode_documents", "windows", "write_tokenizer"]

SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
"""Special tokens, in the order of their ids."""
_TRAINING_CHARACTERS = 6_000_000
_PIECE = 20_000

Streams = dict[str, list[tuple[str, NDArray[np.int64]]]]
"""Per domain, the documents' names and token ids."""


def build_tokenizer(documents: Sequence[Document], vocab: int) -> Tokenizer:
    """Train a byte-level BPE of `vocab` tokens, on as much text of each domain; at least 260 and the special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(documents), trainer)
    if tokenizer.get_vocab_size() != vocab:
        raise InputError(f"the texts give {tokenizer.get_vocab_size()} of {vocab} tokens: give more text")
    return tokenizer


def _sample(documents: Sequence[Document]) -> Iterator[str]:
    """Give pieces of every document, so that no domain has more than half of the characters wanted."""
    for domain in DOMAINS:
        own = [d for d in documents if d.domain == domain]
        total = sum(len(d.text) for d in own)
        share = min(1.0, _TRAINING_CHARACTERS / 2 / max(total, 1))
        for document in own:
            text = document.text[: round(len(document.text) * share)]
            yield from (text[i : i + _PIECE] for i in range(0, len(text), _PIECE))


def encode_documents(tokenizer: Tokenizer, documents: Sequence[Document]) -> Streams:
    """Return every document's token ids, the end-of-sequence token after each."""
    end = SPECIAL.index("</s>")
    streams: Streams = {}
    encoded = tokenizer.encode_batch([document.text for document in documents])
    for document, item in zip(documents, encoded, strict=True):
        ids = np.array([*item.ids, end], np.int64)
        streams.setdefault(document.domain, []).append((document.name, ids))
    return streams


def windows(
    documents: Sequence[tuple[str, NDArray[np.int64]]], length: int, most: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return up to `most` windows (n, length), going round the documents, and the document of each.

    A document gives as many windows as the others, evenly spaced, or as many as it has.
    """
    whole = [(name, ids[: len(ids) // length * length].reshape(-1, length)) for name, ids in documents]
    each = -(-most // max(len(whole), 1))
    rounds: list[tuple[int, int, str, NDArray[np.int64]]] = []
    for number, (name, cut) in enumerate(whole):
        count = min(each, len(cut))
        rows = np.arange(count) * len(cut) // max(count, 1)
        rounds += [(turn, number, name, cut[row]) for turn, row in enumerate(rows)]
    rounds.sort(key=lambda item: item[:2])
    chosen = rounds[:most]
    if not chosen:
        return np.empty((0, length), np.int64), ()
    return np.stack([item[3] for item in chosen]), tuple(item[2] for item in chosen)


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and its configuration as transformers reads them."""
    from transformers import PreTrainedTokenizerFast

    pad, begin, end, unknown = SPECIAL
    wrap: Any = PreTrainedTokenizerFast
    wrapped = wrap(
        tokenizer_object=tokenizer, pad_token=pad, bos_token=begin, eos_token=end, unk_token=unknown
    )
    wrapped.save_pretrained(str(folder))
