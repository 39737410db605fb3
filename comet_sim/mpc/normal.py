"""Reciprocal and inverse square root of any positive number, after it was scaled by a secret power of two.

The highest bit of x is found in its bit representation; the power of two that brings x into [1/2, 1) or
[1/4, 1/2) follows from it without a comparison. Fixed point with f fraction bits, x below 2^(f-1). Counts with
f = 18, interactive truncation and steps in sequence are those of SPU 0.9.5, two parties, measured.
Source: SPU 0.9.5 (Goldschmidt after Catrina and Saxena 2010; the degree-4 polynomial of Puma, Dong et al. 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from comet_sim.mpc.beaver import bit_and, multiply, square
from comet_sim.mpc.compare import arithmetic_to_bits, less_than_zero
from comet_sim.mpc.lanes import and_lanes, bits_to_numbers
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Steps, Variants
from comet_sim.mpc.truncation import rescale

__all__ = ["Ways", "normal_inverse_sqrt", "normal_reciprocal", "normal_signed_reciprocal", "raise_to"]

_INVERSE_SQRT = (4.14285016, -15.47994394, 38.4714796, -49.86605845, 26.02942339)
"""u^(-1/2) on [1/4, 1/2) is c0 + c1 u + ... + c4 u^4, within 0.0003 of its value."""

_FIRST = 2.9142
"""1/c on [1/2, 1) is about 2.9142 - 2c, within 0.086 of its value."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Ways to go that change counts and not results.

    `steps`: steps that do not depend on each other share a round (`parallel`) or follow each other (`sequence`).
    `expanded`: a square is a product, and an operand that serves many entries is opened for each of them.
    `v`: how bits are found and comparisons made.
    """

    steps: Steps = "parallel"
    expanded: bool = False
    v: Variants = CRYPTEN_WAY

    async def square(self, s: Session, x: Any) -> Any:
        """Return x^2 before rescaling: 8n bytes, 16n if `expanded`; 1 round."""
        return await (multiply(s, x, x) if self.expanded else square(s, x))

    async def multiply(self, s: Session, x: Any, y: Any) -> Any:
        """Return x y before rescaling, y broadcast to x: 8 (size x + size y) bytes, 16 size x if `expanded`."""
        return await multiply(s, x, y + s.ops.zeros(x.shape) if self.expanded else y)


async def _highest_bit(s: Session, x: Any, w: Ways) -> Any:
    """Return XOR shares of the word whose only bit is the highest of x > 0.

    A2B (7 rounds, 208n bytes), then 6 rounds and 88n bytes: each bit is joined with all above it.
    """
    with s.scope("highest"):
        word = await arithmetic_to_bits(s, x, w.v)
        for distance in (1, 2, 4, 8, 16):
            above = word >> distance
            word = word ^ above ^ await bit_and(s, word, above)
        # Only the lower half has anything 32 places above it.
        above = word >> 32
        word = word ^ above ^ await and_lanes(s, word, above, 4)
        return word ^ (word >> 1)


def _bits(s: Session, word: Any) -> Any:
    """Return the lowest 2f bits of a word (2f, ...)."""
    return s.ops.stack([(word >> place) & 1 for place in range(2 * s.bits)])


async def normal_reciprocal(s: Session, x: Any, w: Ways) -> Any:
    """Return 1/x for 0 < x < 2^f: f = 16, in parallel: 23 rounds, 392n bytes.

    x times 2^k lies in [1/2, 1); from 2.9142 - 2x two Goldschmidt steps. Off by 10^-4 of its value and 3 units
    in the last place. In sequence, f = 18, interactive truncation: 28 rounds, 432n (with the sign, which is known
    here to be positive, SPU has 36 rounds and 505n).
    """
    with s.scope("reciprocal"):
        f = s.bits
        top = await _highest_bit(s, x, w)
        (factor,) = await bits_to_numbers(s, _bits(s, top), [1 << (2 * f - 1 - e) for e in range(2 * f)])
        c = await rescale(s, await multiply(s, x, factor))
        first = s.add_public(-(c << 1), s.constant(_FIRST))
        if w.steps == "parallel":
            both = await multiply(s, s.ops.stack([factor, c]), first[None])
            both = await rescale(s, both)
            y, product = both[0], both[1]
        else:
            y = await rescale(s, await multiply(s, first, factor))
            product = await rescale(s, await multiply(s, c, first))
        error = s.add_public(-product, s.constant(1))
        if w.steps == "parallel":
            # y (1 + e) and e^2 at once, both factors of which e opens once.
            both = await rescale(s, await multiply(s, s.ops.stack([y, error]), error[None]))
            y, error = y + both[0], both[1]
        else:
            y = await rescale(s, await multiply(s, y, s.add_public(error, s.constant(1))))
            error = await rescale(s, await square(s, error))
        return await rescale(s, await multiply(s, y, s.add_public(error, s.constant(1))))


async def raise_to(s: Session, x: Any, w: Ways) -> Any:
    """Return x, x^2, x^3, x^4 (4, ...): two products and two rescalings, the second of x and x^2 by x^2."""
    squared = await rescale(s, await w.square(s, x))
    two = s.ops.stack([x, squared])
    more = await rescale(s, await w.multiply(s, two, squared[None]))
    return s.ops.concat([two, more], 0)


async def normal_inverse_sqrt(s: Session, x: Any, w: Ways) -> Any:
    """Return x^(-1/2) for 0 < x < 2^(f-1): f = 16, in parallel: 19 rounds, 393n bytes.

    x times 2^k = u lies in [1/4, 1/2); a polynomial gives u^(-1/2), and the exponent, halved, scales it back. Off
    by 0.0004 of its value and 2 units in the last place. In sequence, expanded, f = 18, interactive truncation:
    26 rounds, 429n.
    """
    with s.scope("rsqrt"):
        f = s.bits
        top = await _highest_bit(s, x, w)
        factor, odd, half = await _powers(s, top, w)
        u = await rescale(s, await multiply(s, x, factor))
        powers = await raise_to(s, u, w)
        weights = np.array([s.constant(c) for c in _INVERSE_SQRT[1:]]).reshape(-1, *(1 for _ in u.shape))
        total = s.ops.sum(powers * s.ops.public(weights), 0)[0]
        root = s.add_public(await rescale(s, total), s.constant(_INVERSE_SQRT[0]))
        # Where the exponent is odd a factor of 1 / sqrt 2 is left over.
        share = s.add_public(odd * (s.constant(sqrt(0.5)) - s.constant(1)), s.constant(1))
        back = await multiply(s, half, share)
        return await rescale(s, await multiply(s, root, back), 2 * f - _lowest(f))


def _lowest(f: int) -> int:
    """Return the exponent of the smallest power of two that scales a root back, in units of the last place."""
    return f - f // 2


async def _powers(s: Session, top: Any, w: Ways) -> list[Any]:
    """Return, for the highest bit e: 2^(2f-2-e), whether e - f is odd, and 2^(f - q - lowest), q half of e + 2 - f.

    All are sums of the same bits: one conversion, or in sequence three, of 2f, 1 and f bits.
    """
    f = s.bits
    places = range(2 * f - 1)
    factor = [1 << (2 * f - 2 - e) for e in places] + [0]
    odd = [(e - f) % 2 for e in places] + [0]
    exponents = [f - (e + 2 - f) // 2 - _lowest(f) for e in places]
    bits = _bits(s, top)
    if w.steps == "parallel":
        return await bits_to_numbers(s, bits, factor, odd, [1 << j for j in exponents] + [0])
    joined = [_any(bits, [e for e in places if exponents[e] == j]) for j in sorted(set(exponents))]
    conversions = (
        (bits, factor),
        (s.ops.stack([_any(bits, [e for e in places if odd[e]])]), [1]),
        (s.ops.stack(joined), [1 << j for j in sorted(set(exponents))]),
    )
    return [(await bits_to_numbers(s, part, weights))[0] for part, weights in conversions]


def _any(bits: Any, places: list[int]) -> Any:
    """Return whether one of some bits is set, of which at most one is: local."""
    found = bits[places[0]]
    for place in places[1:]:
        found = found ^ bits[place]
    return found


async def normal_signed_reciprocal(s: Session, x: Any, w: Ways) -> Any:
    """Return 1/x for a secret sign too: comparison, two products more."""
    with s.scope("sign"):
        sign = s.add_public(-(await less_than_zero(s, x, w.v) << 1), 1)
        size = await multiply(s, x, sign)
    return await multiply(s, await normal_reciprocal(s, size, w), sign)
