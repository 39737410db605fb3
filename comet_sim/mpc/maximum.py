"""Maximum and argmax of secret rows: CrypTen's four ways, and a tree of halvings.

Counts equal real CrypTen 0.4.1's, measured, including its unused argmax and its random tie-break;
`Variants` picks the way and may drop the argmax. r rows of L entries throughout; results are exact.
Source: Knott et al. 2021; JaJa, An Introduction to Parallel Algorithms, 2.6 (the last two reductions).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from math import floor, isqrt, log
from typing import Any

from comet_sim.mpc.beaver import bits_to_arithmetic, multiply
from comet_sim.mpc.carry import flipped, keep_where, sign_bit
from comet_sim.mpc.compare import equal, less_than_zero, where
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, MaxMethod, Variants
from comet_sim.mpc.transcript import replayable

__all__ = ["argmax", "maximum", "pick_one", "random_fraction"]

_RANDOM_BITS = 16
_TREE_LIMIT = 128


@replayable
async def random_fraction(s: Session, shape: tuple[int, ...]) -> Any:
    """Return shares of uniform numbers in [0, 1) with 16 fractional bits: 1 round, 128n bytes.

    Each server draws XOR shares of bits nobody knows; B2A turns them into a number.
    """
    bits = s.random_bits((_RANDOM_BITS, *shape))
    arithmetic = await bits_to_arithmetic(s, bits)
    total = arithmetic[0]
    for bit in range(1, _RANDOM_BITS):
        total = total + (arithmetic[bit] << bit)
    return total


async def pick_one(s: Session, weights: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Turn rows of 0/1 with several ones into rows with exactly one, chosen at random among them.

    weights (r, L) integer shares; 10 rounds, 144r + 216rL bytes (160rL with `single-open`).
    """
    with s.scope("pick"):
        running = s.ops.cumsum(weights, 1)
        total = running[:, -1:]
        threshold = await multiply(s, await random_fraction(s, total.shape), total)
        above = await less_than_zero(s, threshold - (running << _RANDOM_BITS), v)
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


async def _winner(s: Session, x: Any, v: Variants) -> Any:
    """Return one-hot rows (r, L) of a largest entry, by comparing every pair.

    K = max(L, 2) - 1 rivals an entry: 18 + ceil(log2 K) rounds (K >= 128: 26), 216KrL bytes and a tree of
    products, then the tie-break.
    """
    ops = s.ops
    rivals = max(x.shape[1], 2) - 1
    differences = ops.stack([x - ops.roll(x, shift, 1) for shift in range(1, rivals + 1)])
    not_below = s.add_public(-(await less_than_zero(s, differences, v)), 1)
    if rivals >= _TREE_LIMIT:
        missing = s.add_public(-ops.sum(not_below, 0)[0], rivals)
        # An entry is a maximum when no comparison is missing: 1 - (0 < missing).
        winners = s.add_public(-(await less_than_zero(s, -missing, v)), 1)
    else:
        winners = await _product(s, not_below)
    return await pick_one(s, winners, v)


async def _pairwise(s: Session, x: Any, v: Variants) -> Any:
    """Return the maximum of each row (r, L) as (r, 1): one more round and 16rL bytes than its one-hot rows."""
    with s.scope("pairwise"):
        return s.ops.sum(await multiply(s, x, await _winner(s, x, v)), 1)


async def _halve(s: Session, x: Any, v: Variants) -> Any:
    """Keep the larger of each pair (r, L) to (r, ceil(L/2)): 10 rounds, 248 r floor(L/2) bytes.

    9 rounds, 176 r floor(L/2) with `single-open` and `one-product`; 8 rounds, 72 r floor(L/2) with `carry`.
    """
    half = x.shape[1] // 2
    first, second = x[:, :half], x[:, half : 2 * half]
    with s.scope("halve"):
        if v.adder == "carry":
            above = flipped(s, await sign_bit(s, first - second))
            larger = second + await keep_where(s, above, first - second)
            return s.ops.concat([larger, x[:, 2 * half :]], 1) if x.shape[1] % 2 else larger
        not_below = s.add_public(-(await less_than_zero(s, first - second, v)), 1)
        larger = await where(s, not_below, first, second, v)
    return s.ops.concat([larger, x[:, 2 * half :]], 1) if x.shape[1] % 2 else larger


async def _log_reduction(s: Session, x: Any, v: Variants) -> Any:
    """floor(ln L) halvings, then all pairs."""
    for _ in range(floor(log(x.shape[1]))):
        x = await _halve(s, x, v)
    return await _pairwise(s, x, v)


async def _double_log(s: Session, x: Any, v: Variants) -> Any:
    """All pairs inside groups of floor(sqrt L), recursively, then all pairs of the groups' maxima."""
    rows, length = x.shape
    if length == 1:
        return x
    width = isqrt(length)
    count = length // width
    groups = x[:, : width * count].reshape((rows * count, width))
    best = (await _double_log(s, groups, v)).reshape((rows, count))
    rest = x[:, width * count :]
    return await _pairwise(s, s.ops.concat([best, rest], 1) if rest.shape[1] else best, v)


async def _cascade(s: Session, x: Any, v: Variants) -> Any:
    """About ln ln ln L halvings, then `_double_log`."""
    if x.shape[1] < 3:
        return await _pairwise(s, x, v)
    # int() rounds towards zero, as CrypTen does: no halving for L of 3 and 4, one up to 5 x 10^6.
    for _ in range(int(log(log(log(x.shape[1])))) + 1):
        x = await _halve(s, x, v)
    return await _double_log(s, x, v)


async def _tree(s: Session, x: Any, v: Variants) -> Any:
    """Halvings down to one entry: ceil(log2 L) of them, L - 1 comparisons a row."""
    while x.shape[1] > 1:
        x = await _halve(s, x, v)
    return x


_REDUCTIONS: dict[MaxMethod, Callable[[Session, Any, Variants], Coroutine[Any, Any, Any]]] = {
    "pairwise": _pairwise,
    "log_reduction": _log_reduction,
    "double_log_reduction": _double_log,
    "accelerated_cascade": _cascade,
    "tree": _tree,
}


async def _locate(s: Session, x: Any, best: Any, v: Variants) -> Any:
    """Return one-hot rows of an entry equal to the row's maximum: 17 rounds, 104rL + 144r + 216rL bytes."""
    with s.scope("argmax"):
        return await pick_one(s, await equal(s, x, best + s.ops.zeros(x.shape)), v)


@replayable
async def maximum(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return the maximum of each row, (r, L) to (r, 1), by `v.max`; entries may differ by 2^63 units at most.

    `log_reduction`: floor(ln L) halvings of 10 rounds, then all pairs; then an argmax nothing uses, unless
    `v.argmax` is false. `tree`, lean: 9 ceil(log2 L) rounds, 176 r (L - 1) bytes.
    """
    with s.scope("max"):
        best = await _REDUCTIONS[v.max](s, x, v)
        if v.argmax and v.max != "pairwise":
            await _locate(s, x, best, v)
        return best


@replayable
async def argmax(s: Session, x: Any, v: Variants = CRYPTEN_WAY) -> Any:
    """Return one-hot rows (r, L), integers: a largest entry of each row, chosen at random among equal ones.

    Costs what `maximum` costs with its argmax; all pairs: one round and 16rL bytes less.
    """
    with s.scope("argmax" if v.max == "pairwise" else "max"):
        if v.max == "pairwise":
            return await _winner(s, x, v)
        return await _locate(s, x, await _REDUCTIONS[v.max](s, x, v), v)
