"""Correlated randomness: what the dealer makes, named by program position, expanded from seeds.

Each server holds a 16-byte seed it shares with the dealer. At a program position a server expands its part
of a triple from its seed alone; only the last tensor (C of a triple) of server 1 cannot come from a seed,
and the dealer sends it: the *correction*, 8 bytes an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc import ring
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.tensor import Shape, pack_bits, packed_words, unpack_bits

__all__ = [
    "AND",
    "B2A",
    "KINDS",
    "MASKED",
    "MATMUL",
    "MULTIPLY",
    "PRIVATE",
    "PRIVATE_32",
    "SHUFFLE",
    "SHUFFLE_BITS",
    "SQUARE",
    "WAVES",
    "Half",
    "Kind",
    "Layout",
    "MaskRef",
    "Operand",
    "Order",
    "Waves",
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
SHUFFLE = Kind("shuffle")
"""A, and a sharing of A in a secret order: half of an oblivious shuffle."""
SHUFFLE_BITS = Kind("shuffle-bits")
"""The same for XOR-shared bits, 64 to a word."""
PRIVATE = Kind("private")
"""A number for each server alone, R0 and R1, and a sharing of R0 * R1."""
PRIVATE_32 = Kind("private-32")
"""The same for numbers of 32 bits, two to a word."""
WAVES = Kind("waves")
"""A random phase T, and sines and cosines of its multiples."""
KINDS = (MULTIPLY, SQUARE, MATMUL, AND, B2A, MASKED, SHUFFLE, SHUFFLE_BITS, PRIVATE, PRIVATE_32, WAVES)


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
class Order:
    """Names a secret order of `count` things: each server draws one from its own seed, the dealer knows both.

    With `group` > 1 the things come in groups of that many, which stay together: the groups are put in order,
    and the members inside each (query heads that share a K/V head). `coarse` is the order of the groups alone.
    """

    name: str
    version: int
    count: int
    group: int = 1
    coarse: bool = False

    def __len__(self) -> int:
        return self.count // self.group if self.coarse else self.count

    def of(self, prg: Prg) -> NDArray[np.int64]:
        """Return one server's order: position i of the result holds what was at `order[i]`."""
        groups = self.count // self.group
        words = prg.words(f"order/{self.name}/{self.version}".encode(), groups + self.count)
        # Sorting uniform words gives a uniform order; two equal words of 64 bits do not happen.
        outer = np.argsort(words[:groups], kind="stable")
        if self.coarse or self.group == 1:
            return outer
        inner = np.argsort(words[groups:].reshape(groups, self.group), axis=1, kind="stable")
        return (outer[:, None] * self.group + inner[outer]).reshape(-1)

    def joined(self, first: Prg, second: Prg) -> NDArray[np.int64]:
        """Return the order both servers' make: server 0's first, then server 1's."""
        return self.of(first)[self.of(second)]


@dataclass(frozen=True, slots=True)
class Half:
    """Half of a shuffle: server `holder` knows the order; the tensor is put in order along `axis`."""

    order: Order
    holder: int
    inverse: bool
    axis: int
    shape: Shape

    def arranged(self, values: NDArray[Any], prg: Prg) -> NDArray[Any]:
        """Return the values in the order that the holder's seed gives (or back, if `inverse`)."""
        order = self.order.of(prg)
        return np.take(values, np.argsort(order) if self.inverse else order, self.axis)


@dataclass(frozen=True, slots=True)
class Waves:
    """Sines and cosines of 1 to `terms` times a random phase, in fixed point with `bits` fraction bits.

    The phase is the lowest `period` bits of the word T, a full turn.
    """

    shape: Shape
    terms: int
    period: int
    bits: int

    def of(self, phase: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sines, then the cosines (2 terms, ...)."""
        turn = np.exp(2j * np.pi * (phase & ((1 << self.period) - 1)) / (1 << self.period))
        powers = np.cumprod(np.broadcast_to(turn, (self.terms, *self.shape)), 0)
        return np.rint(np.concatenate([powers.imag, powers.real]) * 2.0**self.bits).astype(np.int64)


Operand = Shape | MaskRef | Half | Waves


@dataclass(frozen=True, slots=True)
class Layout:
    """Shapes of one piece of randomness: those that come from seeds alone, then the corrected one."""

    operands: tuple[Operand, ...]
    """What it was asked for: shapes, names of fixed masks, halves of a shuffle."""
    seeded: tuple[Shape, ...]
    corrected: Shape
    seeded_words: int
    corrected_words: int
    ring_ops: int
    """Ring multiply-adds the dealer spends on it."""


@lru_cache(maxsize=65536)
def layout(kind: Kind, *operands: Operand) -> Layout:
    """Return the shapes of a piece of randomness for operands of the given shapes (or with fixed masks)."""
    if isinstance(operands[0], Half):
        half = operands[0]
        size = prod(half.shape)
        form = half.shape if kind is SHUFFLE else (packed_words(size),)
        words = prod(form)
        return Layout(operands, (form,), form, words, words, size)
    if isinstance(operands[0], Waves):
        waves = operands[0]
        corrected = (2 * waves.terms, *waves.shape)
        size = prod(waves.shape)
        return Layout(operands, (waves.shape,), corrected, size, prod(corrected), 4 * prod(corrected))
    shapes: tuple[Shape, ...] = tuple(
        operand if isinstance(operand, tuple) else operand.shape for operand in operands
    )
    seeded = tuple(operand for operand in operands if isinstance(operand, tuple))
    if kind is MULTIPLY:
        corrected = np.broadcast_shapes(*shapes)
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
    if isinstance(form.operands[0], Half):
        return _half(kind, form.operands[0], (parts0[0], parts1[0]), last0, seeds)
    if isinstance(form.operands[0], Waves):
        return form.operands[0].of(parts0[0] + parts1[0]) - last0
    if kind is AND:
        a, b = (x0 ^ x1 for x0, x1 in zip(parts0, parts1, strict=True))
        return (a & b) ^ last0
    if kind is B2A:
        bit = (parts0[0] ^ parts1[0]) & 1
        return bit - last0
    if kind is PRIVATE:
        return parts0[0] * parts1[0] - last0
    if kind is PRIVATE_32:
        r0, r1, c0 = (words.astype("<i8", copy=False).view("<u4") for words in (parts0[0], parts1[0], last0))
        packed: Ints = (r0 * r1 - c0).view("<i8").astype(np.int64, copy=False)
        return packed
    seeded = [x0 + x1 for x0, x1 in zip(parts0, parts1, strict=True)]
    if kind is MASKED:
        fresh = iter(seeded)
        seeded = [
            _fixed(operand, seeds) if isinstance(operand, MaskRef) else next(fresh)
            for operand in form.operands
        ]
    return _combine(kind, seeded) - last0


def _half(kind: Kind, half: Half, masks: tuple[Ints, Ints], last0: Ints, seeds: tuple[Prg, Prg]) -> Ints:
    """Return what server 1 lacks of the mask in order: the mask is the stream of the server without the order."""
    mask, prg = masks[1 - half.holder], seeds[half.holder]
    if kind is SHUFFLE:
        return half.arranged(mask, prg) - last0
    bits = unpack_bits(mask, half.shape)
    return pack_bits(half.arranged(bits, prg)) ^ last0


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
