"""Recorded masks: which neurons and heads are active for each token, as a small file that can be shared.

A NumPy archive (.npz, no pickles): `format`, `ffn_shape` and `heads_shape` as (layers, tokens, width), and the bits
of each, packed. A part that is absent is not skipped. Of several sequences: their number as `batch`, and the tokens
of a sequence side by side.
"""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.indexing import Part
from comet_sim.comet.masks import MaskSource
from comet_sim.errors import InputError

__all__ = ["FORMAT", "Bitmap", "load_bitmap", "save_bitmap"]

FORMAT = "comet-sim masks 1"
_LIMIT = 1 << 34
_PARTS: tuple[Part, ...] = ("ffn", "heads")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Bitmap:
    """Masks of every token in the model's own order: (layers, B tokens, neurons) and (layers, B tokens, heads)."""

    ffn: Mask | None
    heads: Mask | None
    batch: int = 1

    @property
    def tokens(self) -> int:
        """How many tokens of each sequence there are masks for."""
        found = next((part.shape[1] for part in (self.ffn, self.heads) if part is not None), 0)
        return found // self.batch

    def of(self, part: Part) -> Mask | None:
        """Return a part's masks."""
        return self.ffn if part == "ffn" else self.heads

    def source(self) -> MaskSource:
        """Return the masks as a source."""

        def source(part: Part, layer: int, start: int, tokens: int) -> Mask:
            masks = self.of(part)
            assert masks is not None, "asked for a part that is not skipped"
            by_sequence = masks[layer].reshape(self.batch, self.tokens, -1)
            rows: Mask = by_sequence[:, start : start + tokens].reshape(-1, masks.shape[2])
            return rows

        return source

    @classmethod
    def of_calls(cls, masks: Sequence[tuple[Part, int, Mask]], batch: int = 1) -> Bitmap:
        """Join masks (B tokens, width) by part and layer, in the order of their tokens."""
        found: dict[Part, dict[int, list[Mask]]] = {}
        for part, layer, mask in masks:
            by_sequence = mask.reshape(batch, -1, mask.shape[1])
            found.setdefault(part, {}).setdefault(layer, []).append(by_sequence)
        joined = {
            part: np.stack([np.concatenate(layers[layer], 1) for layer in sorted(layers)])
            for part, layers in found.items()
        }
        flat = {part: every.reshape(len(every), -1, every.shape[3]) for part, every in joined.items()}
        return cls(flat.get("ffn"), flat.get("heads"), batch)

    @classmethod
    def of_sequences(cls, every: Sequence[Bitmap]) -> Bitmap:
        """Join the masks of single sequences of equal length."""
        found = [[each.of(part) for each in every] for part in _PARTS]
        ffn, heads = (
            None if parts[0] is None else np.concatenate([part for part in parts if part is not None], 1)
            for parts in found
        )
        return cls(ffn, heads, len(every))

    def density(self, part: Part) -> float | None:
        """Return the share of active entries of a part."""
        masks = self.of(part)
        return None if masks is None or not masks.size else float(masks.mean())


def save_bitmap(file: Path | str, bitmap: Bitmap) -> None:
    """Write masks, whole or not at all. Raises InputError when the file cannot be written."""
    path = Path(file)
    arrays: dict[str, Any] = {"format": np.array(FORMAT)}
    if bitmap.batch > 1:
        arrays["batch"] = np.array(bitmap.batch, np.int64)
    for part in _PARTS:
        masks = bitmap.of(part)
        if masks is not None:
            arrays[f"{part}_shape"] = np.array(masks.shape, np.int64)
            arrays[part] = np.packbits(masks)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(buffer.getvalue())
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def load_bitmap(file: Path | str) -> Bitmap:
    """Read masks. Raises InputError naming the file and what is wrong with it."""
    path = Path(file)
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; record one with: comet-sim record-sparsity MODEL --out {path}"
        )
    try:
        # Read first: a damaged archive would leave an open file behind.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            found = {part: _part(path, stored, part) for part in _PARTS if f"{part}_shape" in stored}
            known = str(stored["format"]) if "format" in stored else None
            batch = int(stored["batch"]) if "batch" in stored else 1
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile, KeyError) as error:
        raise InputError(f"{path}: not a whole file of masks ({error})") from None
    if known != FORMAT:
        raise InputError(f"{path}: format: read {known!r}, accepted: {FORMAT!r}")
    if not found:
        raise InputError(f"{path}: holds neither neurons (ffn) nor heads")
    if len({masks.shape[:2] for masks in found.values()}) > 1:
        raise InputError(f"{path}: ffn and heads have masks for different layers or tokens")
    rows = next(iter(found.values())).shape[1]
    if batch < 1 or rows % batch:
        raise InputError(
            f"{path}: batch: read {batch}, accepted: a number of sequences that divides {rows} tokens"
        )
    return Bitmap(found.get("ffn"), found.get("heads"), batch)


def _part(path: Path, stored: Any, part: Part) -> Mask:
    shape = tuple(int(n) for n in stored[f"{part}_shape"])
    if len(shape) != 3 or min(shape) < 1 or np.prod([float(n) for n in shape]) > _LIMIT:
        raise InputError(
            f"{path}: {part}_shape: read {shape}, accepted: layers, tokens and width of at least 1"
        )
    size = shape[0] * shape[1] * shape[2]
    packed = stored[part]
    if packed.dtype != np.uint8 or packed.size != -(-size // 8):
        raise InputError(f"{path}: {part}: holds {packed.size} bytes, but {shape} needs {-(-size // 8)}")
    return np.unpackbits(packed, count=size).astype(bool).reshape(shape)
