"""Elementary functions on shares besides those of `functions`: signed reciprocal, division, root, sine, cosine.

Fixed point with the session's fractional bits; rounds and bytes are those of the default `Iterations` and
`Variants`, errors for 16 fractional bits. Source: Knott et al. 2021; CrypTen 0.4.1, measured.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.compare import sign
from comet_sim.mpc.functions import inverse_sqrt, reciprocal
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import rescale

__all__ = ["cos_sin", "divide", "signed_reciprocal", "square_root"]


@replayable
async def signed_reciprocal(s: Session, x: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return 1/x for |x| from 0.02 to 128: sign, |x|, `reciprocal`, sign; 38 rounds, 552n bytes.

    Off by x^2/2^16 of its value, as `reciprocal`.
    """
    signs = await sign(s, x, v)
    inverse = await reciprocal(s, await multiply(s, signs, x), n)
    return await multiply(s, signs, inverse)


@replayable
async def divide(s: Session, x: Any, y: Any, n: Iterations, v: Variants = CRYPTEN_WAY) -> Any:
    """Return x/y for a secret y, |y| from 0.02 to 128: 39 rounds, 568n bytes.

    Off by y^2/2^16 of its value, and by |x| units in the last place.
    """
    with s.scope("divide"):
        return await rescale(s, await multiply(s, x, await signed_reciprocal(s, y, n, v)))


@replayable
async def square_root(s: Session, x: Any, n: Iterations) -> Any:
    """Return the square root of x from 0.1 to 154: x times `inverse_sqrt`, 18 rounds, 200n bytes.

    Within 0.55% with three Newton steps. 0 gives 0.
    """
    with s.scope("sqrt"):
        return await rescale(s, await multiply(s, await inverse_sqrt(s, x, n), x))


@replayable
async def cos_sin(s: Session, x: Any, n: Iterations) -> tuple[Any, Any]:
    """Return cos x and sin x as (1 + ix / 2^t)^(2^t), t = 10: 1 + 3(t - 1) = 28 rounds, 8 + 32(t - 1) = 296n bytes.

    The first squaring has a public real part of 1. Off by x^2/2^(t+1), and by 2^t units in the last place
    (0.016) from rounding: for |x| up to 6.
    """
    with s.scope("cos_sin"):
        real = s.add_public(-(await rescale(s, await square(s, x), s.bits + 2 * n.trig)), s.constant(1))
        imaginary = await rescale(s, x, n.trig - 1)
        for _ in range(n.trig - 1):
            positive = await square(s, real)
            negative = await square(s, imaginary)
            imaginary = await rescale(s, await multiply(s, imaginary, real), s.bits - 1)
            real = await rescale(s, positive - negative)
        return real, imaginary
