"""Puma's non-linear protocols (Dong et al. 2023) in two-party form; coefficients as in SPU 0.9.5's example code.

GELU and SiLU by two polynomials between comparisons, softmax with an exponential of five squarings that is cut off
below -14, norms with a normalised inverse square root. `native`: with SPU's own two-party protocols and their
order, which `tests/data/spu_semi2k.json` has measured. All fixed point with the session's fraction bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines.choices import checked, replaced
from comet_sim.errors import InputError
from comet_sim.mpc import compare
from comet_sim.mpc.beaver import square
from comet_sim.mpc.maximum import maximum
from comet_sim.mpc.normal import Ways, normal_inverse_sqrt, normal_reciprocal, normal_signed_reciprocal
from comet_sim.mpc.pieces import Piece, piecewise
from comet_sim.mpc.rows import Rows
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Adder, Division, Operands, Steps, Truncation, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import divided, rescale

__all__ = ["PUMA", "Puma"]

_CUT = -14.0
"""Scores this far below the largest count as nothing."""

_GELU = (
    Piece(-4.0, -1.95, {3: -0.0110341340, 2: -0.1180761295, 1: -0.4222658115, 0: -0.5054031200}),
    Piece(-1.95, 3.0, {6: 0.0018067463, 4: -0.0376882004, 2: 0.3603292693, 1: 0.5, 0: 0.0085263215}),
)
_SILU = (
    Piece(-8.0, -4.0, {2: -0.00554656, 1: -0.08197670, 0: -0.30675411}),
    Piece(-4.0, 4.0, {6: 0.00027438, 4: -0.01111305, 2: 0.22814308, 1: 0.5, 0: 0.00850640}),
)
_CHOICES = ("native", "adder", "steps", "division", "operands")


@dataclass(frozen=True, slots=True)
class Puma:
    """The Puma suite.

    `adder`: how comparisons are made; `division`: one reciprocal a row of a softmax, or a division an entry;
    `steps`, `operands`: as in `comet_sim.mpc.normal.Ways`. `native` is SPU's choice of them all, with interactive
    truncation and a reciprocal that looks at the sign first. `squarings` of the exponential: Puma's 5.
    """

    name: str = "puma"
    native: bool = False
    adder: Adder = "crypten"
    steps: Steps = "parallel"
    division: Division = "row"
    operands: Operands = "shared"
    squarings: int = 5

    reference: ClassVar[None] = None

    @property
    def truncation(self) -> Truncation | None:
        """The way of truncation the suite brings with it."""
        return "interactive" if self.native else None

    @property
    def ways(self) -> Ways:
        """Ways of the protocols underneath."""
        return Ways(
            self.steps, self.operands == "expanded", Variants(max="tree", argmax=False, adder=self.adder)
        )

    def choosing(self, choices: Mapping[str, Any]) -> Puma:
        """Return the suite with other choices; `native` first, so that single ones can still differ from it."""
        checked(self.name, choices, _CHOICES)
        native = {"adder": "carry", "steps": "sequence", "operands": "expanded"}
        return replaced(self, {**(native if choices.get("native") else {}), **choices})

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply ReLU, GELU (both forms are one here) or SiLU; InputError for others, which Puma has none of."""
        with s.scope(function):
            match function:
                case "relu":
                    return await compare.relu(s, x, self.ways.v)
                case "gelu" | "gelu_tanh":
                    return await piecewise(s, x, _GELU, self.ways)
                case "silu":
                    return await piecewise(s, x, _SILU, self.ways)
        raise InputError(
            f"suite {self.name!r} has no activation {function!r}; it has relu, gelu, gelu_tanh, silu"
        )

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return softmax over the last axis, over the entries the public mask allows."""
        return await _softmax(s, x, allowed, self)

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d); the power of two scales the input: it keeps digits of small variances."""
        return await _norm(s, x, weight, bias, exponent, epsilon, self.ways)

    async def rms_norm(self, s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float) -> Any:
        """Return RMSNorm of rows (r, d)."""
        return await _norm(s, x, weight, None, exponent, epsilon, self.ways)


@replayable
async def _softmax(s: Session, x: Any, allowed: NDArray[np.bool_] | None, suite: Puma) -> Any:
    """Maximum by a tree; (1 + x/2^t)^(2^t) above the cut; a reciprocal a row, or a division an entry."""
    with s.scope("softmax"):
        shape, w = x.shape, suite.ways
        if shape[-1] == 1:
            return s.add_public(s.ops.zeros(shape), s.constant(1))
        rows = Rows.of(x, allowed)
        scores = rows.for_maximum(s)
        shifted = rows.zeroed(s, scores - await maximum(s, scores, w.v))
        weights = rows.zeroed(s, await _cut_exp(s, shifted, suite.squarings, w))
        total = s.ops.sum(weights, 1)
        if suite.division == "element":
            total = total + s.ops.zeros(weights.shape)
        invert = normal_signed_reciprocal if suite.native else normal_reciprocal
        inverse = await invert(s, total, w)
        with s.scope("normalise"):
            return (await rescale(s, await w.multiply(s, weights, inverse))).reshape(shape)


async def _cut_exp(s: Session, x: Any, squarings: int, w: Ways) -> Any:
    """Return e^x for x <= 0, and 0 below the cut: comparison, squarings, a choice."""
    with s.scope("exp"):
        low = await compare.below(s, s.add_public(x, -s.constant(_CUT)), w.v)
        y = s.add_public(await rescale(s, x, squarings), s.constant(1))
        for _ in range(squarings):
            y = await rescale(s, await square(s, y))
        return await compare.keep(s, compare.inverted(s, low, w.v), y, w.v)


@replayable
async def _norm(s: Session, x: Any, weight: Any, bias: Any, exponent: int, epsilon: float, w: Ways) -> Any:
    """LayerNorm, or RMSNorm without a bias: mean, mean square, inverse square root, two products."""
    with s.scope("norm"):
        width = x.shape[-1]
        x = x << exponent if exponent >= 0 else await rescale(s, x, -exponent)
        if bias is not None:
            x = x - await divided(s, s.ops.sum(x, 1), width)
        squared = await w.square(s, x)
        if w.expanded:
            power = s.ops.sum(await rescale(s, squared), 1)
        else:
            power = await rescale(s, s.ops.sum(squared, 1))
        mean = s.add_public(await divided(s, power, width), s.constant(epsilon * 4.0**exponent))
        inverse = await normal_inverse_sqrt(s, mean, w)
        unit = await rescale(s, await w.multiply(s, x, inverse))
        y = await rescale(s, await w.multiply(s, unit, weight))
        return y if bias is None else y + bias


PUMA = Puma()
"""Puma's approximations on the base layer that all suites share."""
