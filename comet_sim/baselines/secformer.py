"""SecFormer's non-linear protocols (Luo et al. 2024): GELU by a Fourier sum, 2Quad and norms by Goldschmidt steps.

Coefficients and step counts are those of its code (operation/gelu.py, div.py, inv_sqrt.py), which scales nothing: its
steps diverge for sums above 2 and variances above 3. Here a public power of two scales them. ReLU, SiLU, sigmoid
and tanh are CrypTen's, on which SecFormer is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines.choices import checked, replaced
from comet_sim.baselines.crypten import CRYPTEN, CrypTen
from comet_sim.baselines.quadratics import Quadratics, RowScale, quadratic_weights
from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.compare import below, inverted, keep, less_than_zero, without
from comet_sim.mpc.rows import Rows
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Adder, Division, Steps, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import divided, rescale, scaled
from comet_sim.mpc.waves import sine_sum

__all__ = ["SECFORMER", "SecFormer"]

_ERF = (1.25772, -0.0299154, 0.382155, -0.0519123, 0.196033, -0.0624557, 0.118029)
_PERIOD = 20.0
_ERF_END = 2.5
"""erf z is the sum of factors[k-1] sin(k pi z / 10) between -2.5 and 2.5, and -1 or 1 outside."""

_QUAD_MARGIN = 9
"""Means of (x+5)^2 are divided by 512: Goldschmidt's division is right to 0.5% for means from 0.5 to 1,000."""

_NORM_MARGIN = 6
"""Mean squares are divided by 64: 8 steps are right to 0.5% for 0.51 to 180. Even, so that its root is a shift."""


@dataclass(frozen=True, slots=True)
class SecFormer:
    """The SecFormer suite.

    `steps`: the products of an iteration share a round, or follow each other. `native`: in sequence, with squares
    as products, comparisons one by one and 8 bytes opened for the sines, as its code has them. `division`: one
    reciprocal a row of 2Quad, or one an entry. `adder`: how comparisons are made.
    """

    name: str = "secformer"
    native: bool = False
    adder: Adder = "crypten"
    steps: Steps = "parallel"
    division: Division = "row"
    division_steps: int = 13
    norm_steps: int = 8

    truncation: ClassVar[None] = None
    reference: ClassVar[Quadratics] = Quadratics("2Quad for softmax", gelu=False)

    @property
    def base(self) -> CrypTen:
        """CrypTen's protocols, for what is not replaced."""
        return replace(CRYPTEN, name=self.name, variants=self.variants)

    @property
    def variants(self) -> Variants:
        """How comparisons are made."""
        return replace(CRYPTEN.variants, adder=self.adder)

    def choosing(self, choices: Mapping[str, Any]) -> SecFormer:
        """Return the suite with other choices; InputError for one it does not have."""
        checked(self.name, choices, ("native", "adder", "steps", "division"))
        native = {"steps": "sequence"} if choices.get("native") else {}
        return replaced(self, {**native, **choices})

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply an activation function: GELU (both forms) by its Fourier sum, others as CrypTen does."""
        if function in ("gelu", "gelu_tanh"):
            return await _gelu(s, x, self)
        return await self.base.activation(s, x, function)

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return 2Quad over the last axis, over the entries the public mask allows."""
        return await _two_quad(s, x, allowed, self)

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d)."""
        return await _norm(s, x, weight, bias, exponent, epsilon, self)

    async def rms_norm(self, s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float) -> Any:
        """Return RMSNorm of rows (r, d)."""
        return await _norm(s, x, weight, None, exponent, epsilon, self)


@replayable
async def _gelu(s: Session, x: Any, suite: SecFormer) -> Any:
    """x (1 + erf(x / sqrt 2)) / 2: comparisons, sines, two products: 11 rounds, 484n bytes; native 19, 472n."""
    with s.scope("gelu"):
        v = suite.variants
        z = await scaled(s, x, sqrt(0.5))
        edges = [s.add_public(z, s.constant(_ERF_END)), s.add_public(z, -s.constant(_ERF_END))]
        if suite.native:
            return await _gelu_in_sequence(s, x, z, edges, v)
        bits = await below(s, s.ops.stack(edges), v)
        series = await sine_sum(s, z, _ERF, _PERIOD)
        inside = await multiply(s, x, s.add_public(series, s.constant(1)))
        inside = await rescale(s, inside, s.bits + 1)
        between, above = without(bits[1], bits[0], v), inverted(s, bits[1], v)
        with s.scope("choose"):
            kept = await keep(s, s.ops.stack([between, above]), s.ops.stack([inside, x]), v)
        return s.ops.sum(kept, 0)[0]


async def _gelu_in_sequence(s: Session, x: Any, z: Any, edges: list[Any], v: Variants) -> Any:
    """Compare one after the other, choose erf, and multiply by x at the end."""
    low, high = [await less_than_zero(s, edge, v) for edge in edges]
    series = await sine_sum(s, z, _ERF, _PERIOD, lane=8)
    chosen = await multiply(s, high - low, series)
    erf = chosen + s.add_public(-(high + low), 1) * s.constant(1)
    return await rescale(s, await multiply(s, x, s.add_public(erf, s.constant(1))), s.bits + 1)


@replayable
async def _two_quad(s: Session, x: Any, allowed: NDArray[np.bool_] | None, suite: SecFormer) -> Any:
    """Squares, 13 Goldschmidt steps on the row's scaled sum, a product: 15 rounds, 16rL + 304r bytes.

    Native: 27 rounds, 24rL + 408r.
    """
    with s.scope("softmax"):
        shape = x.shape
        if shape[-1] == 1:
            return s.add_public(s.ops.zeros(shape), s.constant(1))
        rows = Rows.of(x, allowed)
        weights = await quadratic_weights(s, rows, native=suite.native)
        scale = RowScale(rows, _QUAD_MARGIN)
        total = await scale.down(s, s.ops.sum(weights, 1))
        if suite.division == "element":
            total = total + s.ops.zeros(weights.shape)
        inverse = await _reciprocal(s, total, suite)
        with s.scope("normalise"):
            return (await scale.up(s, await multiply(s, weights, inverse))).reshape(shape)


async def _reciprocal(s: Session, p: Any, suite: SecFormer) -> Any:
    """Return 1/p for 0 < p < 2: y and p are multiplied by 2 - p until p is 1. The first y is 1, so free."""
    with s.scope("reciprocal"):
        y = None
        for step in range(suite.division_steps):
            m = s.add_public(-p, s.constant(2))
            if y is None:
                y, p = m, await rescale(s, await multiply(s, p, m))
            elif suite.steps == "sequence":
                y = await rescale(s, await multiply(s, y, m))
                p = await rescale(s, await multiply(s, p, m))
            elif step == suite.division_steps - 1:
                y = await rescale(s, await multiply(s, y, m))
            else:
                both = await rescale(s, await multiply(s, s.ops.stack([y, p]), m[None]))
                y, p = both[0], both[1]
        return y


async def _inverse_sqrt(s: Session, p: Any, suite: SecFormer) -> Any:
    """Return p^(-1/2) for 0 < p < 3: y is multiplied by m = (3 - p)/2 and p by its square until p is 1."""
    with s.scope("rsqrt"):
        y = None
        for step in range(suite.norm_steps):
            m = await rescale(s, s.add_public(-p, s.constant(3)), 1)
            last = step == suite.norm_steps - 1
            if suite.steps == "sequence":
                squared = await rescale(s, await square(s, m))
                p = await rescale(s, await multiply(s, p, squared))
                y = m if y is None else await rescale(s, await multiply(s, y, m))
            elif last:
                y = m if y is None else await rescale(s, await multiply(s, y, m))
            else:
                if y is None:
                    y, squared = m, await rescale(s, await square(s, m))
                else:
                    both = await rescale(s, await multiply(s, s.ops.stack([y, m]), m[None]))
                    y, squared = both[0], both[1]
                p = await rescale(s, await multiply(s, p, squared))
        return y


@replayable
async def _norm(
    s: Session, x: Any, weight: Any, bias: Any, exponent: int, epsilon: float, suite: SecFormer
) -> Any:
    """LayerNorm, or RMSNorm without a bias: 18 rounds, 24rd + 288r + 8d bytes; native 26, 24rd + 312r + 8d."""
    with s.scope("norm"):
        width = x.shape[-1]
        x = x << exponent if exponent >= 0 else await rescale(s, x, -exponent)
        if bias is not None:
            x = x - await divided(s, s.ops.sum(x, 1), width)
        power = await rescale(s, s.ops.sum(await square(s, x), 1))
        mean = s.add_public(await divided(s, power, width), s.constant(epsilon * 4.0**exponent))
        inverse = await _inverse_sqrt(s, await rescale(s, mean, _NORM_MARGIN), suite)
        unit = await rescale(s, await multiply(s, x, inverse), s.bits + _NORM_MARGIN // 2)
        y = await rescale(s, await multiply(s, unit, weight))
        return y if bias is None else y + bias


SECFORMER = SecFormer()
"""SecFormer's approximations on the base layer."""
