"""CrypTen's non-linear protocols (Knott et al. 2021; counts measured on CrypTen 0.4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.errors import InputError
from comet_sim.mpc import compare, functions
from comet_sim.mpc.functions import Iterations
from comet_sim.mpc.session import Session

__all__ = ["ACCURATE", "CRYPTEN", "CrypTen"]


@dataclass(frozen=True, slots=True)
class CrypTen:
    """The CrypTen suite; `iterations` says how long its approximations run."""

    name: str
    iterations: Iterations

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply the activation: ReLU, 9 rounds, 232n bytes."""
        if function != "relu":
            raise InputError(f"suite {self.name!r} has no activation {function!r}; it has 'relu'")
        with s.scope("relu"):
            return await compare.relu(s, x)

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return softmax over the last axis, over the entries the public mask allows."""
        return await functions.softmax(s, x, allowed, self.iterations)

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d)."""
        return await functions.layer_norm(
            s, x, weight, bias, exponent=exponent, epsilon=epsilon, n=self.iterations
        )


CRYPTEN = CrypTen("crypten", Iterations())
"""CrypTen's own iteration counts."""

ACCURATE = CrypTen("crypten-accurate", Iterations(exp=9, reciprocal=10, inverse_sqrt=6))
"""The same protocols run longer: a longer exponential and more Newton steps of the inverse square root."""
