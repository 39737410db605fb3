"""Narrow values: 1, 2, 4 or 8 bytes an element on the wire, and dealt randomness packed as densely.

A lane is the low bytes of a ring word. Values live in ordinary tensors; only what is sent, and what is dealt,
is narrow. Corrections are whole words of packed lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from comet_sim.mpc.correlated import AND, B2A
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES, Blank, Ops, Shape, ShapeTensor

__all__ = [
    "and_lanes",
    "bits_to_numbers",
    "lane_bytes",
    "lane_words",
    "pack_lanes",
    "swap_lanes",
    "unpack_lanes",
]


def lane_bytes(bits: int) -> int:
    """Return the narrowest lane, in bytes, that holds so many bits."""
    return next(width for width in (1, 2, 4, 8) if bits <= 8 * width)


def lane_words(count: int, width: int) -> int:
    """Return how many ring words hold `count` lanes of `width` bytes."""
    return -(-count * width // WORD_BYTES)


def pack_lanes(ops: Ops, x: Any, width: int) -> Any:
    """Return the lanes of a tensor side by side in words (count,), the last one filled up with zeros."""
    words = lane_words(x.size, width)
    if not ops.exact:
        return ShapeTensor((words,))
    raw = np.zeros(words * WORD_BYTES // width, f"<u{width}")
    raw[: x.size] = x.reshape(-1).astype(f"<u{width}")
    return raw.view("<i8").astype(np.int64, copy=False)


def unpack_lanes(ops: Ops, words: Any, shape: Shape, width: int) -> Any:
    """Return the lanes in words as a tensor of numbers from 0 to 2^(8 width) - 1 (width 8: ring elements)."""
    if not ops.exact:
        return ShapeTensor(shape)
    lanes = words.astype("<i8", copy=False).view(f"<u{width}")[: prod(shape)]
    return lanes.astype(np.int64).reshape(shape)


async def swap_lanes(s: Session, width: int, *parts: Any) -> tuple[Any, ...]:
    """Send the peer the lanes of some tensors and return its own: one round, `width` bytes an element."""
    ops = s.ops
    buffer: Any
    if not ops.exact:
        await s.exchange(s.peer, Blank(width * sum(part.size for part in parts)))
        return tuple(ShapeTensor(part.shape) for part in parts)
    buffer = await s.exchange(s.peer, b"".join(part.astype(f"<u{width}").tobytes() for part in parts))
    lanes = np.frombuffer(buffer, f"<u{width}").astype(np.int64)
    return ops.split(lanes, tuple(part.shape for part in parts))


async def and_lanes(s: Session, x: Any, y: Any, width: int) -> Any:
    """AND of XOR-shared lanes of one shape: one round, 2 `width` bytes an element; `width` bytes of correction.

    Higher bits of the operands are ignored, those of the result are zero.
    """
    words = lane_words(x.size, width)
    piece = s.correlated(AND, (words,), (words,))
    a, b = (unpack_lanes(s.ops, part, x.shape, width) for part in piece.seeded)
    mine = x ^ a, y ^ b
    theirs = await swap_lanes(s, width, *mine)
    e, f = (ours ^ their for ours, their in zip(mine, theirs, strict=True))
    c = unpack_lanes(s.ops, await piece.corrected(), x.shape, width)
    s.charge(3 * words, WORD_BYTES * 6 * words)
    product = c ^ (e & b) ^ (a & f)
    product = product ^ (e & f) if s.index == 0 else product
    return product if width == WORD_BYTES else product & ((1 << 8 * width) - 1)


async def bits_to_numbers(s: Session, bits: Any, *weights: Sequence[int]) -> list[Any]:
    """Turn XOR-shared bits (k, ...) into additive shares of weighted sums of them, the weights ring integers.

    One round, the k bits of an element in one lane: 1, 2, 4 or 8 bytes for k up to 8, 16, 32, 64. A dealt random
    bit masks each, 8 bytes of correction a bit. Source: SPU's conversion, counts measured.
    """
    piece = s.correlated(B2A, bits.shape)
    (boolean,) = piece.seeded
    count = bits.shape[0]
    places = np.arange(count, dtype=np.int64).reshape(-1, *(1 for _ in bits.shape[1:]))
    lane = s.ops.sum(((bits ^ boolean) & 1) << places, 0)[0]
    # The rest of a lane is noise that nobody uses: the message is uniform as a whole.
    lane = lane ^ (boolean[0] & (-1 << count)) if count < 64 else lane
    (theirs,) = await swap_lanes(s, lane_bytes(count), lane)
    opened = (s.ops.stack([lane ^ theirs] * count) >> places) & 1
    arithmetic = await piece.corrected()
    s.charge(3 * bits.size, WORD_BYTES * 4 * bits.size)
    numbers = arithmetic - (arithmetic * opened << 1)
    numbers = numbers + opened if s.index == 0 else numbers
    factors = [np.array(each, np.uint64).view(np.int64).reshape(places.shape) for each in weights]
    return [s.ops.sum(numbers * s.ops.public(each), 0)[0] for each in factors]
