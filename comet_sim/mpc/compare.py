"""Comparison: arithmetic to Boolean shares by a carry-lookahead adder, sign bit, equality, and what uses them.

Counts equal real CrypTen 0.4.1's, measured; the adder opens one operand twice, as there.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.beaver import bit_and, bits_to_arithmetic, multiply
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.mpc.transcript import replayable

__all__ = ["arithmetic_to_bits", "equal", "less_than_zero", "relu", "where"]

_WORD_BITS = 64


async def arithmetic_to_bits(s: Session, x: Any) -> Any:
    """Turn additive shares into XOR shares of the same 64-bit word: 7 rounds, 208n bytes.

    Each server's share is an XOR-shared word whose other share is zero; a parallel-prefix (Kogge-Stone)
    adder adds the two words: AND(n), then six levels of AND(2n).
    """
    ops = s.ops
    zero = ops.zeros(x.shape)
    x0, x1 = (x, zero) if s.index == 0 else (zero, x)
    carry = await bit_and(s, x0, x1)
    propagate = x
    total = x
    for level in range(6):
        shift = 1 << level
        both = ops.stack([carry << shift, propagate << shift])
        reached = await bit_and(s, ops.stack([propagate, propagate]), both)
        carry = carry ^ reached[0]
        propagate = reached[1]
        s.charge(0, WORD_BYTES * 6 * x.size)
    return total ^ (carry << 1)


async def less_than_zero(s: Session, x: Any) -> Any:
    """Return shares of the bit x < 0, as integers 0 or 1: 8 rounds, 216n bytes."""
    with s.scope("ltz"):
        word = await arithmetic_to_bits(s, x)
        return await bits_to_arithmetic(s, (word >> (_WORD_BITS - 1)) & 1)


async def equal(s: Session, x: Any, y: Any) -> Any:
    """Return shares of the bit x = y, as integers 0 or 1: 7 rounds, 104n bytes.

    x0 - y0 = y1 - x1 exactly when x = y, so the servers' two words are compared by an AND tree.
    """
    with s.scope("eq"):
        difference = x - y
        # XNOR of the words d0 and -d1: all ones exactly when they are equal.
        word = ~difference if s.index == 0 else -difference
        for level in (32, 16, 8, 4, 2, 1):
            word = await bit_and(s, word, word >> level)
        return await bits_to_arithmetic(s, word & 1)


async def where(s: Session, condition: Any, x: Any, y: Any) -> Any:
    """Choose x where the shared bit is 1, else y: two multiplies in sequence, 2 rounds, 32n bytes."""
    chosen = await multiply(s, condition, x)
    inverse = s.add_public(-condition, 1)
    return chosen + await multiply(s, inverse, y)


@replayable
async def relu(s: Session, x: Any) -> Any:
    """Return max(x, 0): 9 rounds, 232n bytes."""
    negative = await less_than_zero(s, x)
    return await multiply(s, x, s.add_public(-negative, 1))
