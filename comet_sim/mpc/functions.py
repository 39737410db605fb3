"""Exponential, reciprocal, inverse square root, softmax and LayerNorm on shares, by CrypTen's iterations.

All inputs and outputs are fixed point with the session's fractional bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.maximum import maximum
from comet_sim.mpc.session import Session
from comet_sim.mpc.transcript import replayable

__all__ = ["Iterations", "exp", "inverse_sqrt", "layer_norm", "reciprocal", "softmax"]


@dataclass(frozen=True, slots=True)
class Iterations:
    """How long each approximation runs; the defaults are CrypTen 0.4.1's."""

    exp: int = 8
    reciprocal: int = 10
    inverse_sqrt: int = 3


_SUM_BOUND = 16
"""Sums are scaled to at most this by a public power of two: the reciprocal is off by x^2/2^16 of its value, a
quarter at 128, and scaling costs a small sum as many of its bits; 16 balances the two for rows of 2,048."""

_MASKED = -(1 << 20)
"""Stand-in score of a masked entry while the maximum is taken: below any real one, far from the ring's ends."""


async def exp(s: Session, x: Any, n: Iterations) -> Any:
    """Return e^x for -2^(t+1) < x <= 0 as (1 + x / 2^t)^(2^t): t rounds, 8tn bytes (t = 8: 8 rounds, 64n).

    Off by x^2/2^(t+1) of its value, and by up to 2^(t+1) units in the last place near 0.
    """
    with s.scope("exp"):
        y = s.add_public(s.truncate(x, n.exp), s.constant(1))
        for _ in range(n.exp):
            y = s.truncate(await square(s, y))
        return y


async def reciprocal(s: Session, x: Any, n: Iterations) -> Any:
    """Return 1/x for x from 0.02 to 128: Newton from 3 e^(1-2x) + 0.003; 28 rounds, 304n bytes.

    Off by x^2/2^16 of its value (one unit in the last place of y^2, times x); garbage near 250.
    """
    with s.scope("reciprocal"):
        start = await exp(s, s.add_public(-(x << 1), s.constant(1)), n)
        y = s.add_public(start * 3, s.constant(0.003))
        for _ in range(n.reciprocal):
            squared = s.truncate(await square(s, y))
            y = (y << 1) - s.truncate(await multiply(s, squared, x))
        return y


async def inverse_sqrt(s: Session, x: Any, n: Iterations) -> Any:
    """Return x^(-1/2) for x from about 0.1 to 154: Newton from 2.2 e^-(x/2+0.2) + 0.2 - x/1024.

    17 rounds, 184n bytes with three steps.
    """
    with s.scope("rsqrt"):
        start = await exp(s, s.add_public(-s.truncate(x, 1), -s.constant(0.2)), n)
        y = s.add_public(s.scale(start, 2.2), s.constant(0.2)) - s.truncate(x, 10)
        for _ in range(n.inverse_sqrt):
            squared = s.truncate(await square(s, y))
            product = s.truncate(await multiply(s, squared, x))
            y = s.truncate(await multiply(s, y, s.add_public(-product, s.constant(3))), s.bits + 1)
        return y


@replayable
async def softmax(s: Session, x: Any, allowed: NDArray[np.bool_] | None, n: Iterations) -> Any:
    """Return softmax over the last axis of x (..., L), over the entries the public mask allows.

    max + 37 rounds, max + 64rL + 304r + 8(rL + r) bytes for r rows; rows of one entry cost nothing.
    Masked entries stay out of the maximum and are zeroed after the exponential, which is wrong far below 0.
    """
    with s.scope("softmax"):
        ops = s.ops
        shape = x.shape
        length = shape[-1]
        if length == 1:
            return s.add_public(ops.zeros(shape), s.constant(1))
        rows = x.reshape((-1, length))
        keep = None
        if allowed is not None and not allowed.all():
            keep = np.broadcast_to(allowed, shape).reshape(-1, length)
            rows = ops.select(rows, keep, _MASKED << s.bits if s.index == 0 else 0)
        shifted = rows - await maximum(s, rows)
        if keep is not None:
            shifted = ops.select(shifted, keep, 0)
        weights = await exp(s, shifted, n)
        if keep is not None:
            weights = ops.select(weights, keep, 0)
        # The sum is at most L, which is public: scaled below the reciprocal's bound, and back afterwards.
        down = max(0, (length - 1).bit_length() - _SUM_BOUND.bit_length() + 1)
        total = ops.sum(weights, 1)
        inverse = await reciprocal(s, s.truncate(total, down) if down else total, n)
        with s.scope("normalise"):
            return s.truncate(await multiply(s, weights, inverse), s.bits + down).reshape(shape)


@replayable
async def layer_norm(
    s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float, n: Iterations
) -> Any:
    """Return LayerNorm of rows x (r, d) with shared weight and bias (d,): 20 rounds, 24rd + 192r + 8d bytes.

    The input is first multiplied by the public 2^exponent, which the result does not depend on but the range
    of the inverse square root does. Local, no bytes.
    """
    with s.scope("norm"):
        ops = s.ops
        width = x.shape[-1]
        x = x << exponent if exponent >= 0 else s.truncate(x, -exponent)
        centred = x - s.divide(ops.sum(x, 1), width)
        # Summed before truncation: one rounding a row instead of one an element.
        power = s.truncate(ops.sum(await square(s, centred), 1))
        variance = s.add_public(s.divide(power, width), s.constant(epsilon * 4.0**exponent))
        inverse = await inverse_sqrt(s, variance, n)
        normalised = s.truncate(await multiply(s, centred, inverse))
        return s.truncate(await multiply(s, normalised, weight)) + bias
