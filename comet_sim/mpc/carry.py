"""Comparison by the one carry it needs, and choosing by a bit that stays shared by XOR.

The sign of x0 + x1 is the XOR of both shares' highest bits and the carry into them. A tree halves the number of
(generate, propagate) pairs a level, so later levels open narrower lanes. Counts are those of SPU 0.9.5, two
parties, measured; the construction is a reconstruction that has them.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.beaver import bit_and, multiply
from comet_sim.mpc.lanes import and_lanes, bits_to_numbers, lane_bytes
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["bit_to_number", "flipped", "keep_where", "sign_bit"]

_TOP = 63
_PAIRS = ((0, 5), (1, 4), (2, 3))
"""Places of a 6-bit index that trade places when the index is written backwards."""


def _swap(first: int, second: int) -> tuple[int, int]:
    """Return distance and mask that exchange bits whose index differs in two of its places."""
    mask = sum(1 << i for i in range(64) if i >> first & 1 and not i >> second & 1)
    return (1 << second) - (1 << first), mask


_SWAPS = tuple(_swap(*pair) for pair in _PAIRS)


def _rearranged(x: Any) -> Any:
    """Return 64-bit words with bit i at the place whose 6-bit number is i backwards: local, bits only move."""
    for distance, mask in _SWAPS:
        moved = (x ^ (x >> distance)) & mask
        x = x ^ moved ^ (moved << distance)
    return x


async def sign_bit(s: Session, x: Any) -> Any:
    """Return XOR shares of the bit x < 0, integers 0 or 1: 7 rounds, 56n bytes, 28n of correction. Exact.

    Pairs lie in the order of their numbers backwards: so neighbours are half a lane apart at every level.
    """
    ops = s.ops
    with s.scope("msb"):
        # The carry out of the lower 63 bits: shifted up, so that it leaves the word.
        own = x << 1
        zero = ops.zeros(x.shape)
        generate = await bit_and(s, *((own, zero) if s.index == 0 else (zero, own)))
        generate, propagate = (_rearranged(part) if ops.exact else part for part in (generate, own))
        s.charge(0, WORD_BYTES * 4 * x.size)
        half = 32
        while half:
            low = (1 << half) - 1
            upper = (propagate >> half) & low
            both = await and_lanes(
                s, ops.stack([upper, upper]), ops.stack([generate & low, propagate & low]), lane_bytes(half)
            )
            generate = (generate >> half) & low ^ both[0]
            propagate = both[1]
            half //= 2
        return ((x >> _TOP) ^ generate) & 1


def flipped(s: Session, bit: Any) -> Any:
    """Return XOR shares of the other bit: local."""
    return bit ^ 1 if s.index == 0 else bit


async def keep_where(s: Session, bit: Any, x: Any) -> Any:
    """Return x where the XOR-shared bit is 1 and 0 elsewhere: 1 round, 16n bytes. Exact.

    With bit = b0 XOR b1: (x0 + x1)(b0 + b1 - 2 b0 b1) has two products across the servers, which are those of one
    product of the sharings (b0, b1) and (x0 (1 - 2 b0), x1 (1 - 2 b1)); what a server can compute itself is added.
    """
    crossed = await multiply(s, bit, x - (x * bit << 1))
    return crossed + (x * bit << 1)


async def bit_to_number(s: Session, bit: Any) -> Any:
    """Turn XOR shares of a bit into additive shares of 0 or 1: 1 round, n bytes."""
    (number,) = await bits_to_numbers(s, s.ops.stack([bit]), (1,))
    return number
