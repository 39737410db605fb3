"""Text to token ids and back, over a checkpoint's own tokenizer.json."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from comet_sim.errors import InputError

__all__ = ["TextTokenizer"]


class TextTokenizer:
    """A checkpoint's tokenizer; raises InputError when the file is missing or not a tokenizer."""

    __slots__ = ("_inner", "path")

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise InputError(f"{self.path}: no such file, expected a tokenizer.json")
        try:
            self._inner = Tokenizer.from_file(str(self.path))
        except Exception as error:  # tokenizers raises plain Exception for every malformed file
            raise InputError(f"{self.path}: not a tokenizer.json ({error})") from error

    @property
    def vocab(self) -> int:
        """Number of token ids, special tokens included."""
        return int(self._inner.get_vocab_size())

    def encode(self, text: str) -> list[int]:
        """Token ids of `text` as the checkpoint's tokenizer yields them, its own special tokens included."""
        return list(self._inner.encode(text).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out; raises InputError for an id outside the vocabulary."""
        ids = [int(item) for item in token_ids]
        for item in ids:
            if not 0 <= item < self.vocab:
                raise InputError(f"token id {item}: {self.path} has ids 0 to {self.vocab - 1}")
        return str(self._inner.decode(ids))
