"""Activation functions on shares: sigmoid, tanh, erf, GELU and SiLU.

Fixed point with the session's fractional bits; rounds and bytes are those of the default `Iterations` and
`Variants`, errors absolute and for 16 fractional bits. Source: Knott et al. 2021 and CrypTen 0.4.1, measured,
for all but the exponential erf and what is built on it, which are ours.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import cos, factorial, pi, sqrt
from math import tanh as tanh_of
from typing import Any

from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.compare import hardtanh, less_than_zero, where
from comet_sim.mpc.functions import exp, polynomial
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import rescale, scaled

__all__ = ["erf", "gelu", "gelu_tanh", "sigmoid", "silu", "tanh"]

_ERFC_SQUARINGS = 8
_ERFC = (-1.123954, -0.661127, -0.056668)
"""erfc z = (1 + (c1 z + c2 z^2 + c3 z^3) / 2^8)^(2^8) for z >= 0: least maximum error, 2 x 10^-4."""


@replayable
async def sigmoid(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return 1/(1 + e^-x) for |x| up to 500: 23 rounds, 376n bytes; off by 0.004.

    For |x|, by Newton steps of 1/(1 + e^-|x|) from 0.75, the first of them public; 1 minus it where x < 0.
    With the Chebyshev tanh: 1/2 + tanh(x/2)/2, 25 rounds, 712n bytes, for |x| up to 2; off by 0.0001.
    """
    with s.scope("sigmoid"):
        one = s.constant(1)
        if v.tanh == "chebyshev":
            return s.add_public(
                await rescale(s, await _tanh_chebyshev(s, await rescale(s, x, 1), n, v), 1), one >> 1
            )
        negative = await less_than_zero(s, x, v)
        size = await multiply(s, x, s.add_public(-(negative << 1), 1))
        denominator = s.add_public(await exp(s, -size, n), one)
        y = s.add_public(-(await scaled(s, denominator, 0.75**2)), s.constant(2 * 0.75))
        for _ in range(n.sigmoid - 1):
            squared = await rescale(s, await square(s, y))
            y = (y << 1) - (await rescale(s, await multiply(s, squared, denominator)))
        positive = s.add_public(-negative, 1)
        return await where(s, positive, y, s.add_public(-y, one), v)


@replayable
async def tanh(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return tanh x = 2 sigmoid(2x) - 1 for |x| up to 250: 23 rounds, 376n bytes; off by 0.008.

    `chebyshev`: a series of degree 31, for |x| up to 1: 25 rounds, 712n bytes; off by 0.0001.
    """
    with s.scope("tanh"):
        if v.tanh == "chebyshev":
            return await _tanh_chebyshev(s, x, n, v)
        return s.add_public(await sigmoid(s, x << 1, n, v) << 1, -s.constant(1))


@lru_cache(maxsize=16)
def _chebyshev_of_tanh(terms: int) -> tuple[float, ...]:
    """Return the coefficients of T1, T3, ... in tanh on [-1, 1], by sums over `terms` Chebyshev nodes."""
    angles = [(node + 0.5) * pi / terms for node in range(terms)]
    return tuple(
        2 / terms * sum(tanh_of(cos(angle)) * cos(degree * angle) for angle in angles)
        for degree in range(1, terms, 2)
    )


async def _tanh_chebyshev(s: Session, x: Any, n: Iterations, v: Variants) -> Any:
    """T1, T3, ... by T(k+2) = (4x^2 - 2) T(k) - T(k-2): square, half of `terms` - 1 products, hardtanh."""
    step = s.add_public(await rescale(s, await square(s, x), s.bits - 2), -s.constant(2))
    before, now = x, await rescale(s, await multiply(s, s.add_public(step, -s.constant(1)), x))
    first, second, *rest = (s.constant(c) for c in _chebyshev_of_tanh(n.chebyshev))
    total = before * first + now * second
    for factor in rest:
        before, now = now, await rescale(s, await multiply(s, step, now)) - before
        total = total + now * factor
    return await hardtanh(s, await rescale(s, total), v)


async def _erfc(s: Session, size: Any, n: Iterations) -> Any:
    """Return erfc z for z from 0 to 17: cubic, then 8 squarings; 10 rounds, 88n bytes; off by 0.005 of its value."""
    exponent = await polynomial(s, size, _ERFC)
    return await exp(s, exponent, replace(n, exp=_ERFC_SQUARINGS))


async def _power(s: Session, x: Any, exponent: int) -> Any:
    """Return x^exponent for |x| <= 1, by squarings and products."""
    result = None
    while True:
        if exponent & 1:
            result = x if result is None else (await rescale(s, await multiply(s, result, x)))
        exponent >>= 1
        if not exponent:
            return result
        x = await rescale(s, await square(s, x))


async def _erf_taylor(s: Session, x: Any, n: Iterations) -> Any:
    """Sum of (-1)^k x^(2k+1) / (k! (2k+1)), every power from the start as in CrypTen, on x/2 to keep digits."""
    half = await rescale(s, x, 1)
    total = half * s.constant(4 / sqrt(pi))
    for k in range(1, n.erf + 1):
        degree = 2 * k + 1
        factor = (-1) ** k * 2.0**degree / (factorial(k) * degree) * 2 / sqrt(pi)
        total = total + await _power(s, half, degree) * s.constant(factor)
    return await rescale(s, total)


@replayable
async def erf(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return the error function for |x| up to 17: 20 rounds, 336n bytes; off by 0.005.

    1 - erfc |x| with the sign of x, where erfc is an exponential of a cubic. `taylor`: the series CrypTen sums,
    with right powers (its own explode): 34 rounds, 376n bytes, for |x| up to 1.5; off by 0.001.
    """
    with s.scope("erf"):
        if v.erf == "taylor":
            return await _erf_taylor(s, x, n)
        signs = s.add_public(-(await less_than_zero(s, x, v) << 1), 1)
        tail = await _erfc(s, await multiply(s, x, signs), n)
        return await multiply(s, s.add_public(-tail, s.constant(1)), signs)


@replayable
async def gelu(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return GELU, x (1 + erf(x / sqrt 2)) / 2, for |x| up to 24: 20 rounds, 336n bytes; off by 0.002.

    max(x, 0) - |x| erfc(|x| / sqrt 2) / 2: ReLU and |x| come from one comparison and one product. With the
    Taylor erf: 35 rounds, 392n bytes, for |x| up to 2.1; off by 0.001.
    """
    with s.scope("gelu"):
        if v.erf == "taylor":
            inner = s.add_public(await erf(s, await scaled(s, x, sqrt(0.5)), n, v), s.constant(1))
            return await rescale(s, await multiply(s, x, inner), s.bits + 1)
        below = await multiply(s, x, await less_than_zero(s, x, v))
        size = x - (below << 1)
        tail = await _erfc(s, await scaled(s, size, sqrt(0.5)), n)
        return x - below - (await rescale(s, await multiply(s, size, tail), s.bits + 1))


@replayable
async def gelu_tanh(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return GELU by tanh, x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, for |x| up to 18.

    26 rounds, 416n bytes; off by 0.0025.
    """
    with s.scope("gelu_tanh"):
        cube = await rescale(s, await multiply(s, await rescale(s, await square(s, x)), x))
        linear = sqrt(2 / pi)
        inner = await rescale(s, x * s.constant(linear) + cube * s.constant(0.044715 * linear))
        outer = s.add_public(await tanh(s, inner, n, v), s.constant(1))
        return await rescale(s, await multiply(s, x, outer), s.bits + 1)


@replayable
async def silu(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return SiLU, x sigmoid(x), for |x| up to 500: 24 rounds, 392n bytes; off by 0.005 + 2^-15 |x|."""
    with s.scope("silu"):
        return await rescale(s, await multiply(s, x, await sigmoid(s, x, n, v)))
