"""Exponential, logarithm, reciprocal, inverse square root, softmax and norms on shares, by CrypTen's iterations.

All inputs and outputs are fixed point with the session's fractional bits. Rounds and bytes are those of the
default `Iterations`; errors are for 16 fractional bits. Source: Knott et al. 2021; CrypTen 0.4.1, measured.
"""

from __future__ import annotations

from dataclasses import replace
from math import log as ln
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.maximum import maximum
from comet_sim.mpc.rows import Rows
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import divided, rescale, scaled

__all__ = [
    "Iterations",
    "exp",
    "inverse_sqrt",
    "layer_norm",
    "log",
    "log_softmax",
    "polynomial",
    "reciprocal",
    "rms_norm",
    "softmax",
]

_SUM_BOUND = 16
"""Sums are scaled to at most this by a public power of two: the reciprocal is off by x^2/2^16 of its value, a
quarter at 128, and scaling costs a small sum as many of its bits; 16 balances the two for rows of 2,048."""


async def exp(s: Session, x: Any, n: Iterations) -> Any:
    """Return e^x for -2^(t+1) < x <= 0 as (1 + x / 2^t)^(2^t): t rounds, 8tn bytes (t = 8: 8 rounds, 64n).

    Off by x^2/2^(t+1) of its value, and by up to 2^(t+1) units in the last place near 0.
    """
    with s.scope("exp"):
        y = s.add_public(await rescale(s, x, n.exp), s.constant(1))
        for _ in range(n.exp):
            y = await rescale(s, await square(s, y))
        return y


async def reciprocal(s: Session, x: Any, n: Iterations) -> Any:
    """Return 1/x for x from 0.02 to 128: Newton from 3 e^(1-2x) + 0.003; 28 rounds, 304n bytes.

    Off by x^2/2^16 of its value (one unit in the last place of y^2, times x); garbage near 250.
    """
    with s.scope("reciprocal"):
        start = await exp(s, s.add_public(-(x << 1), s.constant(1)), n)
        y = s.add_public(start * 3, s.constant(0.003))
        for _ in range(n.reciprocal):
            squared = await rescale(s, await square(s, y))
            y = (y << 1) - (await rescale(s, await multiply(s, squared, x)))
        return y


async def inverse_sqrt(s: Session, x: Any, n: Iterations) -> Any:
    """Return x^(-1/2) for x from about 0.1 to 154: Newton from 2.2 e^-(x/2+0.2) + 0.2 - x/1024.

    17 rounds, 184n bytes with three steps.
    """
    with s.scope("rsqrt"):
        start = await exp(s, s.add_public(-(await rescale(s, x, 1)), -s.constant(0.2)), n)
        y = s.add_public(await scaled(s, start, 2.2), s.constant(0.2)) - (await rescale(s, x, 10))
        for _ in range(n.inverse_sqrt):
            squared = await rescale(s, await square(s, y))
            product = await rescale(s, await multiply(s, squared, x))
            y = await rescale(s, await multiply(s, y, s.add_public(-product, s.constant(3))), s.bits + 1)
        return y


async def polynomial(s: Session, x: Any, coefficients: tuple[float, ...]) -> Any:
    """Return c1 x + c2 x^2 + ... + ck x^k in ceil(log2 k) rounds: k = 8: 3 rounds, 72n bytes; k = 3: 2, 24n.

    The powers double in number: each level multiplies those it needs by the highest, opened once. Off by
    about k units in the last place, times the coefficients, and |x|^k where |x| > 1.
    """
    ops = s.ops
    powers = x[None]
    while (count := powers.shape[0]) < len(coefficients):
        top = powers[count - 1 :]
        more = powers[: len(coefficients) - count]
        raised = await (square(s, top) if count == 1 else multiply(s, more, top))
        powers = ops.concat([powers, await rescale(s, raised)], 0)
    factors = np.array([s.constant(c) for c in coefficients]).reshape(-1, *(1 for _ in x.shape))
    return await rescale(s, ops.sum(powers * ops.public(factors), 0)[0])


@replayable
async def log(s: Session, x: Any, n: Iterations) -> Any:
    """Return ln x for x from 0.001 to 250: 32 rounds, 368n bytes; off by 0.1, from 0.1 to 16 by 0.02.

    Householder steps y <- y - sum of h^k / k with h = 1 - x e^-y, from x/120 - 20 e^(-2x-1) + 3; each takes
    an exponential, a product and a polynomial of degree 8.
    """
    with s.scope("log"):
        start = await exp(s, s.add_public(-(x << 1), -s.constant(1)), n)
        y = s.add_public(await divided(s, x, 120) - start * 20, s.constant(3))
        steps = replace(n, exp=n.log_exp)
        order = tuple(1 / k for k in range(1, n.log_order + 1))
        for _ in range(n.log):
            product = await rescale(s, await multiply(s, x, await exp(s, -y, steps)))
            with s.scope("polynomial"):
                y = y - await polynomial(s, s.add_public(-product, s.constant(1)), order)
        return y


def _sum_shift(length: int) -> int:
    """Return how far to scale down a sum of `length` entries of at most 1: public, below `_SUM_BOUND`."""
    return max(0, (length - 1).bit_length() - _SUM_BOUND.bit_length() + 1)


@replayable
async def softmax(
    s: Session, x: Any, allowed: NDArray[np.bool_] | None, n: Iterations, v: Variants = CRYPTEN_WAY
) -> Any:
    """Return softmax over the last axis of x (..., L), over the entries the public mask allows.

    max + 37 rounds, max + 64rL + 304r + 8(rL + r) bytes for r rows; rows of one entry cost nothing.
    Masked entries stay out of the maximum and are zeroed after the exponential, which is wrong far below 0.
    Entries are off by 0.012 at most, for scores down to 500 below the largest.
    """
    with s.scope("softmax"):
        ops = s.ops
        shape = x.shape
        length = shape[-1]
        if length == 1:
            return s.add_public(ops.zeros(shape), s.constant(1))
        rows = Rows.of(x, allowed)
        scores = rows.for_maximum(s)
        weights = rows.zeroed(s, await exp(s, rows.zeroed(s, scores - await maximum(s, scores, v)), n))
        # The sum is at most L, which is public: scaled below the reciprocal's bound, and back afterwards.
        down = _sum_shift(length)
        total = ops.sum(weights, 1)
        inverse = await reciprocal(s, await rescale(s, total, down) if down else total, n)
        with s.scope("normalise"):
            return (await rescale(s, await multiply(s, weights, inverse), s.bits + down)).reshape(shape)


@replayable
async def log_softmax(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return the logarithm of softmax over the last axis of x (..., L).

    max + 40 rounds, max + 64rL + 368r bytes for r rows; rows of one entry cost nothing. Off by 0.06 at most,
    for scores down to 500 below the largest.
    """
    with s.scope("log_softmax"):
        shape = x.shape
        length = shape[-1]
        if length == 1:
            return s.ops.zeros(shape)
        rows = x.reshape((-1, length))
        shifted = rows - await maximum(s, rows, v)
        total = s.ops.sum(await exp(s, shifted, n), 1)
        down = _sum_shift(length)
        shrunk = await log(s, await rescale(s, total, down) if down else total, n)
        return (shifted - s.add_public(shrunk, s.constant(down * ln(2)))).reshape(shape)


@replayable
async def layer_norm(
    s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float, n: Iterations
) -> Any:
    """Return LayerNorm of rows x (r, d) with shared weight and bias (d,): 20 rounds, 24rd + 192r + 8d bytes.

    The input is first multiplied by the public 2^exponent, which the result does not depend on but the range
    of the inverse square root does. Local, no bytes.
    """
    with s.scope("norm"):
        width = x.shape[-1]
        x = x << exponent if exponent >= 0 else (await rescale(s, x, -exponent))
        centred = x - (await divided(s, s.ops.sum(x, 1), width))
        return await _normalised(s, centred, weight, epsilon * 4.0**exponent, n) + bias


@replayable
async def rms_norm(s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float, n: Iterations) -> Any:
    """Return RMSNorm of rows x (r, d) with shared weight (d,): 20 rounds, 24rd + 192r + 8d bytes.

    x over the root of its mean square; `exponent` as in `layer_norm`, for mean squares of 0.1 to 154 after it.
    """
    with s.scope("norm"):
        x = x << exponent if exponent >= 0 else (await rescale(s, x, -exponent))
        return await _normalised(s, x, weight, epsilon * 4.0**exponent, n)


async def _normalised(s: Session, x: Any, weight: Any, epsilon: float, n: Iterations) -> Any:
    """Return rows over the root of their mean square plus epsilon, times the weight."""
    # Summed before truncation: one rounding a row instead of one an element.
    power = await rescale(s, s.ops.sum(await square(s, x), 1))
    inverse = await inverse_sqrt(
        s, s.add_public(await divided(s, power, x.shape[-1]), s.constant(epsilon)), n
    )
    unit = await rescale(s, await multiply(s, x, inverse))
    return await rescale(s, await multiply(s, unit, weight))
