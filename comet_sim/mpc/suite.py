"""The suite seam: a set of non-linear protocols that a model runs on the shared base layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.session import Session

__all__ = ["ACTIVATIONS", "Suite"]

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
"""Names of activation functions; `gelu` by erf, `gelu_tanh` by tanh."""


class Suite(Protocol):
    """Non-linear protocols of one system; linear layers are the same for all."""

    @property
    def name(self) -> str:
        """Name in scenarios."""

    def choosing(self, choices: Mapping[str, Any]) -> Suite:
        """Return the suite with other ways to go where it has several, by name; InputError for what it lacks."""

    async def activation(self, s: Session, x: Any, function: str) -> Any:
        """Apply an activation function, one of `ACTIVATIONS`, elementwise; InputError for others."""

    async def softmax(self, s: Session, x: Any, allowed: NDArray[np.bool_] | None) -> Any:
        """Return softmax over the last axis, over the entries the public mask allows."""

    async def layer_norm(
        self, s: Session, x: Any, weight: Any, bias: Any, *, exponent: int, epsilon: float
    ) -> Any:
        """Return LayerNorm of rows (r, d); `exponent` is the public power of two of the norm's rescaling."""

    async def rms_norm(self, s: Session, x: Any, weight: Any, *, exponent: int, epsilon: float) -> Any:
        """Return RMSNorm of rows (r, d); `exponent` as in `layer_norm`."""
