"""The suite seam: a set of non-linear protocols that a model runs on the shared base layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Truncation

__all__ = ["ACTIVATIONS", "Reference", "Suite"]

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh")
"""Names of activation functions; `gelu` by erf, `gelu_tanh` by tanh."""


class Reference(Protocol):
    """What a suite that replaces functions computes in their place, on plain numbers: what it is checked against."""

    @property
    def what(self) -> str:
        """The replacements, in a phrase."""

    def activation(self, function: str, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Apply what stands for an activation function."""

    def softmax(self, scores: NDArray[np.float64], allowed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return what stands for softmax over the last axis of scores, over the entries allowed."""


class Suite(Protocol):
    """Non-linear protocols of one system; linear layers are the same for all."""

    @property
    def name(self) -> str:
        """Name in scenarios."""

    @property
    def truncation(self) -> Truncation | None:
        """The way of truncation the suite brings with it; None: as the run says."""

    @property
    def reference(self) -> Reference | None:
        """What the suite computes in place of other functions; None if it computes those functions."""

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
