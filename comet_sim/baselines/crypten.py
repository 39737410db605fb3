"""CrypTen's non-linear protocols (Knott et al. 2021; counts measured on CrypTen 0.4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines.choices import checked
from comet_sim.errors import InputError
from comet_sim.mpc import activations, compare, functions
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.mpc.suite import ACTIVATIONS

__all__ = ["ACCURATE", "CRYPTEN", "LEAN", "CrypTen"]


@dataclass(frozen=True, slots=True)
class CrypTen:
    """The CrypTen suite: `iterations` says how long approximations run, `variants` which way protocols go."""

    name: str
    iterations: Iterations
    variants: Variants = CRYPTEN_WAY

    truncation: ClassVar[None] = None
    reference: ClassVar[None] = None

    def choosing(self, choices: Mapping[str, Any]) -> CrypTen:
        """Return the suite with some of its `Variants` replaced, under the same name; InputError for unknown ones."""
        checked(self.name, choices, [field.name for field in fields(Variants)])
        return replace(self, variants=replace(self.variants, **choices))

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply the activation; costs are those of `comet_sim.mpc.activations` (ReLU: 9 rounds, 232n bytes).

        CrypTen ships no GELU: `gelu` is built from its comparison and exponential, unless `variants` takes its erf.
        """
        n, v = self.iterations, self.variants
        match function:
            case "relu":
                with s.scope("relu"):
                    return await compare.relu(s, x, v)
            case "gelu":
                return await activations.gelu(s, x, n, v)
            case "gelu_tanh":
                return await activations.gelu_tanh(s, x, n, v)
            case "silu":
                return await activations.silu(s, x, n, v)
            case "sigmoid":
                return await activations.sigmoid(s, x, n, v)
            case "tanh":
                return await activations.tanh(s, x, n, v)
        raise InputError(
            f"suite {self.name!r} has no activation {function!r}; it has {', '.join(ACTIVATIONS)}"
        )

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return softmax over the last axis, over the entries the public mask allows."""
        return await functions.softmax(s, x, allowed, self.iterations, self.variants)

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d): 20 rounds, 24rd + 192r + 8d bytes."""
        return await functions.layer_norm(
            s, x, weight, bias, exponent=exponent, epsilon=epsilon, n=self.iterations
        )

    async def rms_norm(self, s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float) -> Any:
        """Return RMSNorm of rows (r, d): 20 rounds, 24rd + 192r + 8d bytes."""
        return await functions.rms_norm(s, x, weight, exponent=exponent, epsilon=epsilon, n=self.iterations)


CRYPTEN = CrypTen("crypten", Iterations())
"""CrypTen's own iteration counts and choices."""

ACCURATE = CrypTen("crypten-accurate", Iterations(exp=9, reciprocal=10, inverse_sqrt=6, sigmoid=4))
"""The same protocols run longer: a longer exponential and more Newton steps."""

LEAN = CrypTen(
    "crypten-lean",
    Iterations(),
    Variants(max="tree", argmax=False, adder="single-open", where="one-product"),
)
"""CrypTen's approximations with cheaper comparisons: tree maximum, no unused argmax, no operand opened twice."""
