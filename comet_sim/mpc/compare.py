"""Comparison: arithmetic to Boolean shares by a carry-lookahead adder, sign bit, equality, and what uses them.

Counts are those of CrypTen 0.4.1, measured, with its own variants; the second figure is that of `single-open`
and `one-product`. With `carry` the sign is a bit shared by XOR (`comet_sim.mpc.carry`).
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.beaver import bit_and, bits_to_arithmetic, multiply
from comet_sim.mpc.carry import bit_to_number, flipped, keep_where, sign_bit
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Variants
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.mpc.transcript import replayable

__all__ = [
    "absolute",
    "arithmetic_to_bits",
    "below",
    "equal",
    "hardtanh",
    "inverted",
    "keep",
    "less_than_zero",
    "relu",
    "sign",
    "where",
    "without",
]

_WORD_BITS = 64
_LEVELS = 6


async def arithmetic_to_bits(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Turn additive shares into XOR shares of the same 64-bit word: 7 rounds, 208n bytes (152n).

    Each server's share is an XOR-shared word whose other share is zero; a parallel-prefix (Kogge-Stone)
    adder adds the two words: AND(n), then six levels of AND(2n). Both products of a level share an operand,
    which CrypTen opens twice (32n bytes a level); `single-open` opens it once (24n) and leaves out the last
    level's product that nothing uses.
    """
    ops = s.ops
    zero = ops.zeros(x.shape)
    x0, x1 = (x, zero) if s.index == 0 else (zero, x)
    carry = await bit_and(s, x0, x1)
    propagate = x
    once = v.adder == "single-open"
    for level in range(_LEVELS):
        shift = 1 << level
        if once and level == _LEVELS - 1:
            carry = carry ^ await bit_and(s, propagate, carry << shift)
            s.charge(0, WORD_BYTES * 3 * x.size)
            break
        both = ops.stack([carry << shift, propagate << shift])
        if once:
            reached = await bit_and(s, both, propagate[None])
        else:
            reached = await bit_and(s, ops.stack([propagate, propagate]), both)
        carry = carry ^ reached[0]
        propagate = reached[1]
        s.charge(0, WORD_BYTES * 6 * x.size)
    return x ^ (carry << 1)


async def less_than_zero(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return shares of the bit x < 0, as integers 0 or 1: 8 rounds, 216n bytes (160n; `carry` 57n). Exact."""
    with s.scope("ltz"):
        if v.adder == "carry":
            return await bit_to_number(s, await sign_bit(s, x))
        word = await arithmetic_to_bits(s, x, v)
        return await bits_to_arithmetic(s, (word >> (_WORD_BITS - 1)) & 1)


async def equal(s: Session, x: Any, y: Any) -> Any:
    """Return shares of the bit x = y, as integers 0 or 1: 7 rounds, 104n bytes. Exact.

    x0 - y0 = y1 - x1 exactly when x = y, so the servers' two words are compared by an AND tree.
    """
    with s.scope("eq"):
        difference = x - y
        # XNOR of the words d0 and -d1: all ones exactly when they are equal.
        word = ~difference if s.index == 0 else -difference
        for level in (32, 16, 8, 4, 2, 1):
            word = await bit_and(s, word, word >> level)
        return await bits_to_arithmetic(s, word & 1)


async def where(s: Session, condition: Any, x: Any, y: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Choose x where the shared bit (an integer 0 or 1) is 1, else y: 2 rounds, 32n bytes (1 round, 16n). Exact.

    CrypTen's way is two products in sequence; `one-product` is y + bit (x - y).
    """
    if v.where == "one-product":
        return y + await multiply(s, condition, x - y)
    chosen = await multiply(s, condition, x)
    inverse = s.add_public(-condition, 1)
    return chosen + await multiply(s, inverse, y)


async def below(s: Session, x: Any, v: Variants) -> Any:
    """Return shares of the bit x < 0 in the form `keep` takes: by XOR with `carry` (7 rounds, 56n), else integers."""
    if v.adder != "carry":
        return await less_than_zero(s, x, v)
    with s.scope("ltz"):
        return await sign_bit(s, x)


def inverted(s: Session, bit: Any, v: Variants) -> Any:
    """Return the other bit, in the form of `below`: local."""
    return flipped(s, bit) if v.adder == "carry" else s.add_public(-bit, 1)


def without(bit: Any, inner: Any, v: Variants) -> Any:
    """Return the bit `bit` and not `inner`, which holds only where `bit` does: local."""
    return bit ^ inner if v.adder == "carry" else bit - inner


async def keep(s: Session, bit: Any, x: Any, v: Variants) -> Any:
    """Return x where the bit, in the form of `below`, is 1, and 0 elsewhere: 1 round, 16n bytes. Exact."""
    return await (keep_where(s, bit, x) if v.adder == "carry" else multiply(s, bit, x))


async def sign(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return -1 where x < 0 and 1 elsewhere, as integers: 8 rounds, 216n bytes (160n). Exact; the sign of 0 is 1."""
    return s.add_public(-(await less_than_zero(s, x, v) << 1), 1)


@replayable
async def absolute(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return |x|: 9 rounds, 232n bytes (176n; `carry` 8, 72n). Exact."""
    if v.adder == "carry":
        return x - (await keep_where(s, await sign_bit(s, x), x) << 1)
    return await multiply(s, x, await sign(s, x, v))


@replayable
async def relu(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return max(x, 0): 9 rounds, 232n bytes (176n; `carry` 8, 72n). Exact."""
    if v.adder == "carry":
        return await keep_where(s, flipped(s, await sign_bit(s, x)), x)
    negative = await less_than_zero(s, x, v)
    return await multiply(s, x, s.add_public(-negative, 1))


@replayable
async def hardtanh(
    s: Session, x: Any, v: Variants = CRYPTEN_WAY, *, low: float = -1.0, high: float = 1.0
) -> Any:
    """Return x limited to [low, high]: two ReLUs side by side, 9 rounds, 464n bytes (352n; 8, 144n). Exact."""
    with s.scope("hardtanh"):
        bounds = s.constant(low), s.constant(high)
        above = await relu(s, s.ops.stack([s.add_public(x, -bound) for bound in bounds]), v)
        return s.add_public(above[0] - above[1], bounds[0])
