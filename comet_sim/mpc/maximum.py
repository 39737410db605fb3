"""Maximum and argmax of secret rows, the way CrypTen takes them (log reduction, then pairwise).

Counts equal real CrypTen 0.4.1's, measured, including its unused argmax and its random tie-break.
"""

from __future__ import annotations

from math import floor, log
from typing import Any

from comet_sim.mpc.beaver import bits_to_arithmetic, multiply
from comet_sim.mpc.compare import equal, less_than_zero, where
from comet_sim.mpc.session import Session

__all__ = ["maximum"]

_RANDOM_BITS = 16
_TREE_LIMIT = 128


async def _random_fraction(s: Session, shape: tuple[int, ...]) -> Any:
    """Return shares of uniform numbers in [0, 1) with 16 bits: XOR shares from each server, then B2A."""
    bits = s.random_bits((_RANDOM_BITS, *shape))
    arithmetic = await bits_to_arithmetic(s, bits)
    total = arithmetic[0]
    for bit in range(1, _RANDOM_BITS):
        total = total + (arithmetic[bit] << bit)
    return total


async def _pick_one(s: Session, weights: Any) -> Any:
    """Turn rows of 0/1 with several ones into rows with exactly one, chosen at random among them.

    weights (r, L) integer shares; 10 rounds, 144r + 216rL bytes.
    """
    with s.scope("pick"):
        running = s.ops.cumsum(weights, 1)
        total = running[:, -1:]
        threshold = await multiply(s, await _random_fraction(s, total.shape), total)
        above = await less_than_zero(s, threshold - (running << _RANDOM_BITS))
        zero = s.ops.zeros(total.shape)
        return above - s.ops.concat([zero, above[:, :-1]], 1)


async def _product(s: Session, factors: Any) -> Any:
    """Multiply along the first axis by a tree."""
    count = factors.shape[0]
    while count > 1:
        half = count // 2
        paired = await multiply(s, factors[:half], factors[half : 2 * half])
        factors = s.ops.concat([paired, factors[2 * half :]], 0) if count % 2 else paired
        count = half + count % 2
    return factors[0]


async def _pairwise(s: Session, x: Any) -> Any:
    """Return the maximum of each row (r, L) as (r, 1), by comparing every pair."""
    with s.scope("pairwise"):
        ops = s.ops
        rivals = max(x.shape[1], 2) - 1
        differences = ops.stack([x - ops.roll(x, shift, 1) for shift in range(1, rivals + 1)])
        not_below = s.add_public(-(await less_than_zero(s, differences)), 1)
        if rivals >= _TREE_LIMIT:
            missing = s.add_public(-ops.sum(not_below, 0)[0], rivals)
            # An entry is a maximum when no comparison is missing: 1 - (0 < missing).
            winners = s.add_public(-(await less_than_zero(s, -missing)), 1)
        else:
            winners = await _product(s, not_below)
        chosen = await _pick_one(s, winners)
        return ops.sum(await multiply(s, x, chosen), 1)


async def maximum(s: Session, x: Any) -> Any:
    """Return the maximum of each row, (r, L) to (r, 1).

    floor(ln L) halvings of 10 rounds, then all pairs, then CrypTen's argmax, which nothing uses.
    """
    with s.scope("max"):
        ops = s.ops
        reduced = x
        for _ in range(floor(log(x.shape[1]))):
            half = reduced.shape[1] // 2
            first, second = reduced[:, :half], reduced[:, half : 2 * half]
            with s.scope("halve"):
                not_below = s.add_public(-(await less_than_zero(s, first - second)), 1)
                larger = await where(s, not_below, first, second)
            odd = reduced.shape[1] % 2
            reduced = ops.concat([larger, reduced[:, 2 * half :]], 1) if odd else larger
        best = await _pairwise(s, reduced)
        with s.scope("argmax"):
            await _pick_one(s, await equal(s, x, best + ops.zeros(x.shape)))
        return best
