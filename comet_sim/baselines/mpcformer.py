"""MPCFormer's non-linear protocols (Li et al. 2023): quadratics on CrypTen's protocols.

GELU is x^2/8 + x/2 + 1/4 (as in its code; the paper's text has x/4 + 1/2) and softmax 2Quad. What it does not
replace is CrypTen's: ReLU, SiLU, sigmoid, tanh, and LayerNorm, in whose place its own benchmark has BatchNorm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines.choices import checked, replaced
from comet_sim.baselines.crypten import CRYPTEN, CrypTen
from comet_sim.baselines.quadratics import Quadratics, RowScale, quadratic_gelu, quadratic_weights
from comet_sim.mpc.beaver import multiply
from comet_sim.mpc.elementary import signed_reciprocal
from comet_sim.mpc.functions import reciprocal
from comet_sim.mpc.rows import Rows
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Adder, Division
from comet_sim.mpc.transcript import replayable

__all__ = ["MPCFORMER", "MPCFormer"]

_MARGIN = 3
"""Means of (x+5)^2 are divided by 8: the reciprocal is right for means from 0.16 to 1,000."""


@dataclass(frozen=True, slots=True)
class MPCFormer:
    """The MPCFormer suite.

    `native`: squares as products, and CrypTen's reciprocal of either sign, as its code has them. `division`: one
    reciprocal a row, or one an entry. `adder`: that of CrypTen's comparisons.
    """

    name: str = "mpcformer"
    native: bool = False
    adder: Adder = "crypten"
    division: Division = "row"

    truncation: ClassVar[None] = None
    reference: ClassVar[Quadratics] = Quadratics("2Quad for softmax and a quadratic for GELU", gelu=True)

    @property
    def base(self) -> CrypTen:
        """CrypTen's protocols, for what is not replaced."""
        return replace(CRYPTEN, name=self.name, variants=replace(CRYPTEN.variants, adder=self.adder))

    def choosing(self, choices: Mapping[str, Any]) -> MPCFormer:
        """Return the suite with other choices; InputError for one it does not have."""
        checked(self.name, choices, ("native", "adder", "division"))
        return replaced(self, choices)

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply an activation function: the quadratic for GELU, CrypTen's others."""
        if function in ("gelu", "gelu_tanh"):
            return await quadratic_gelu(s, x, native=self.native)
        return await self.base.activation(s, x, function)

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return 2Quad over the last axis, over the entries the public mask allows."""
        return await _two_quad(s, x, allowed, self)

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d), CrypTen's."""
        return await self.base.layer_norm(s, x, weight, bias, exponent=exponent, epsilon=epsilon)

    async def rms_norm(self, s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float) -> Any:
        """Return RMSNorm of rows (r, d), CrypTen's."""
        return await self.base.rms_norm(s, x, weight, exponent=exponent, epsilon=epsilon)


@replayable
async def _two_quad(s: Session, x: Any, allowed: NDArray[np.bool_] | None, suite: MPCFormer) -> Any:
    """Squares, a reciprocal of the row's scaled sum, a product: 30 rounds, 16rL + 312r bytes; native 40, 24rL + 560r.

    A division an entry costs as many rounds and 328rL bytes; native 584rL.
    """
    with s.scope("softmax"):
        shape, n = x.shape, suite.base.iterations
        if shape[-1] == 1:
            return s.add_public(s.ops.zeros(shape), s.constant(1))
        rows = Rows.of(x, allowed)
        weights = await quadratic_weights(s, rows, native=suite.native)
        scale = RowScale(rows, _MARGIN)
        total = await scale.down(s, s.ops.sum(weights, 1))
        if suite.division == "element":
            total = total + s.ops.zeros(weights.shape)
        if suite.native:
            inverse = await signed_reciprocal(s, total, n, suite.base.variants)
        else:
            inverse = await reciprocal(s, total, n)
        with s.scope("normalise"):
            return (await scale.up(s, await multiply(s, weights, inverse))).reshape(shape)


MPCFORMER = MPCFormer()
"""MPCFormer's quadratics on the base layer."""
