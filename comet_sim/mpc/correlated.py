"""Correlated randomness: what the dealer makes, named by program position, expanded from seeds.

Each server holds a 16-byte seed it shares with the dealer. At a program position a server expands its part
of a triple from its seed alone; only the last tensor (C of a triple) of server 1 cannot come from a seed,
and the dealer sends it: the *correction*, 8 bytes an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc import ring
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.tensor import Shape

__all__ = [
    "AND",
    "B2A",
    "KINDS",
    "MASKED",
    "MATMUL",
    "MULTIPLY",
    "SQUARE",
    "Kind",
    "Layout",
    "MaskRef",
    "deal",
    "expand",
    "layout",
]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of correlated randomness."""

    name: str


MULTIPLY = Kind("multiply")
"""A, B, C = A * B with broadcasting."""
SQUARE = Kind("square")
"""A, C = A * A."""
MATMUL = Kind("matmul")
"""A, B, C = A @ B."""
AND = Kind("and")
"""A, B, C = A & B, shared by XOR."""
B2A = Kind("b2a")
"""Random bits, shared by XOR and by addition."""
MASKED = Kind("masked")
"""A (where an operand has no fixed mask), B, C = A @ B: masks that `comet_sim.mpc.masking` reuses stay out."""
KINDS = (MULTIPLY, SQUARE, MATMUL, AND, B2A, MASKED)


@dataclass(frozen=True, slots=True)
class MaskRef:
    """Names a fixed mask and the part of it in use: what a server tells the dealer of an operand.

    The mask is one stream, laid out with the growing `axis` first: more rows continue it.
    """

    name: str
    version: int
    axis: int
    rows: int
    rest: Shape
    """Dimensions other than the axis."""
    swapped: bool
    """Whether the last two axes are exchanged in the product."""

    @property
    def shape(self) -> Shape:
        """Shape of the operand in the product."""
        dims = (*self.rest[: self.axis], self.rows, *self.rest[self.axis :])
        return (*dims[:-2], dims[-1], dims[-2]) if self.swapped else dims

    def words(self, prg: Prg, start: int = 0) -> NDArray[np.int64]:
        """Return the mask's rows from `start` on, as one seed gives them, in the tensor's own layout."""
        width = prod(self.rest)
        position = f"mask/{self.name}/{self.version}".encode()
        words = prg.words(position, (self.rows - start) * width, skip=start * width)
        return np.moveaxis(words.reshape(self.rows - start, *self.rest), 0, self.axis)


@dataclass(frozen=True, slots=True)
class Layout:
    """Shapes of one piece of randomness: those that come from seeds alone, then the corrected one."""

    operands: tuple[Shape | MaskRef, ...]
    """What it was asked for: shapes, and names of fixed masks."""
    seeded: tuple[Shape, ...]
    corrected: Shape
    seeded_words: int
    corrected_words: int
    ring_ops: int
    """Ring multiply-adds the dealer spends on it."""


@lru_cache(maxsize=65536)
def layout(kind: Kind, *operands: Shape | MaskRef) -> Layout:
    """Return the shapes of a piece of randomness for operands of the given shapes (or with fixed masks)."""
    shapes = tuple(operand.shape if isinstance(operand, MaskRef) else operand for operand in operands)
    seeded = tuple(operand for operand in operands if not isinstance(operand, MaskRef))
    if kind is MULTIPLY:
        corrected: Shape = np.broadcast_shapes(*shapes)
        ring_ops = prod(corrected)
    elif kind is MATMUL or kind is MASKED:
        x, y = shapes
        corrected = (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])
        ring_ops = prod(corrected) * x[-1]
    else:
        corrected = shapes[0]
        ring_ops = prod(corrected)
    seeded_words = sum(prod(shape) for shape in seeded)
    return Layout(operands, seeded, corrected, seeded_words, prod(corrected), ring_ops)


def _combine(kind: Kind, seeded: list[Ints]) -> Ints:
    if kind is MULTIPLY:
        return seeded[0] * seeded[1]
    if kind is SQUARE:
        return seeded[0] * seeded[0]
    return ring.matmul(seeded[0], seeded[1])


def deal(kind: Kind, form: Layout, position: tuple[int, int], seeds: tuple[Prg, Prg]) -> Ints:
    """Return the correction of server 1 for a program position: the dealer's side of the randomness.

    Shape `form.corrected`. With shares A = A0 + A1 and so on, correction = f(A, B) - C0, or f(A, B) XOR C0.
    """
    words0 = seeds[0].words(position, form.seeded_words + form.corrected_words)
    words1 = seeds[1].words(position, form.seeded_words)
    last0 = words0[form.seeded_words :].reshape(form.corrected)
    parts0 = _split(words0, form.seeded)
    parts1 = _split(words1, form.seeded)
    if kind is AND:
        a, b = (x0 ^ x1 for x0, x1 in zip(parts0, parts1, strict=True))
        return (a & b) ^ last0
    if kind is B2A:
        bit = (parts0[0] ^ parts1[0]) & 1
        return bit - last0
    seeded = [x0 + x1 for x0, x1 in zip(parts0, parts1, strict=True)]
    if kind is MASKED:
        fresh = iter(seeded)
        seeded = [
            _fixed(operand, seeds) if isinstance(operand, MaskRef) else next(fresh)
            for operand in form.operands
        ]
    return _combine(kind, seeded) - last0


def _fixed(ref: MaskRef, seeds: tuple[Prg, Prg]) -> Ints:
    mask = ref.words(seeds[0]) + ref.words(seeds[1])
    return mask.swapaxes(-1, -2) if ref.swapped else mask


def _split(words: Ints, shapes: tuple[Shape, ...]) -> list[Ints]:
    out = []
    start = 0
    for shape in shapes:
        stop = start + prod(shape)
        out.append(words[start:stop].reshape(shape))
        start = stop
    return out


def expand(
    form: Layout, position: tuple[int, int], seed: Prg, *, corrected: bool
) -> tuple[tuple[Ints, ...], Ints | None]:
    """Return what one server's seed gives: the seeded tensors, and the last one unless it is corrected."""
    if corrected:
        return tuple(_split(seed.words(position, form.seeded_words), form.seeded)), None
    words = seed.words(position, form.seeded_words + form.corrected_words)
    return tuple(_split(words, form.seeded)), words[form.seeded_words :].reshape(form.corrected)
