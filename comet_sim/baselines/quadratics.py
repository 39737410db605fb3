"""2Quad, which stands for softmax in MPCFormer and SecFormer: (x+5)^2 over the row's sum of it.

It is another function, not an approximation: a model must be trained with it. So what such a suite is checked
against is the plain model with the same replacements (`Quadratics`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.models.plain import activate
from comet_sim.mpc.beaver import multiply, square
from comet_sim.mpc.rows import Rows
from comet_sim.mpc.session import Session
from comet_sim.mpc.truncation import rescale

__all__ = ["Quadratics", "RowScale", "quadratic_gelu", "quadratic_weights"]

Floats = NDArray[np.float64]

_SHIFT = 5.0
_SINGLE = 32.0


@dataclass(frozen=True, slots=True)
class Quadratics:
    """The plain functions: 2Quad for softmax and, with `gelu`, x^2/8 + x/2 + 1/4 for GELU."""

    what: str
    gelu: bool

    def activation(self, function: str, x: Floats) -> Floats:
        """Apply an activation function, or the quadratic for GELU."""
        if self.gelu and function in ("gelu", "gelu_tanh"):
            return np.asarray(0.125 * x * x + 0.5 * x + 0.25)
        return activate(function, x)

    def softmax(self, scores: Floats, allowed: NDArray[np.bool_]) -> Floats:
        """Return 2Quad over the last axis, over the entries allowed."""
        weights: Floats = np.where(allowed, (scores + _SHIFT) ** 2, 0.0)
        total: Floats = weights / weights.sum(axis=-1, keepdims=True)
        return total


async def quadratic_gelu(s: Session, x: Any, *, native: bool) -> Any:
    """Return x^2/8 + x/2 + 1/4: 1 round, 8n bytes; `native` as a product of x/8 and x, 16n. Off by two units."""
    with s.scope("gelu"):
        if native:
            squared = await rescale(s, await multiply(s, await rescale(s, x, 3), x))
            return s.add_public(squared + await rescale(s, x, 1), s.constant(0.25))
        both = await square(s, x) + (x << (s.bits + 2))
        return s.add_public(await rescale(s, both, s.bits + 3), s.constant(0.25))


async def quadratic_weights(s: Session, rows: Rows, *, native: bool) -> Any:
    """Return (x+5)^2 of allowed entries and 0 of others: 1 round, 8rL bytes; `native` as a product, 16rL.

    Where a row has a single entry its weight cancels out: a public constant then stands for it, as its square may
    be too small to divide by.
    """
    shifted = s.add_public(rows.scores, s.constant(_SHIFT))
    squared = await (multiply(s, shifted, shifted) if native else square(s, shifted))
    weights = await rescale(s, squared)
    if (single := rows.counts() == 1).any():
        several = np.broadcast_to(~single, weights.shape)
        weights = s.ops.select(weights, several, s.constant(_SINGLE) if s.index == 0 else 0)
    return rows.zeroed(s, weights)


class RowScale:
    """Public powers of two that bring sums over rows to means, and quotients back.

    A row with c allowed entries is divided by 2^(ceil(log2 c) + `margin`): then its sum is below the mean of an
    entry over 2^`margin`, whatever the row's length. c is public, and so is its power of two. No bytes with local
    truncation.
    """

    def __init__(self, rows: Rows, margin: int) -> None:
        self._shifts = np.array([int(c - 1).bit_length() + margin for c in rows.counts()[:, 0]])[:, None]
        self._most = int(self._shifts.max())
        self._factors = 1 << (self._most - self._shifts)
        self._even = bool((self._factors == 1).all())

    def _divided(self, s: Session, x: Any, bits: int) -> Any:
        return rescale(s, x if self._even else x * s.ops.public(self._factors), self._most + bits)

    async def down(self, s: Session, total: Any) -> Any:
        """Return sums (r, 1) divided by their powers of two."""
        return await self._divided(s, total, 0)

    async def up(self, s: Session, quotient: Any) -> Any:
        """Return products (r, L) of entries with the inverse of a scaled sum, not yet rescaled, as quotients."""
        if self._even and s.truncation == "local":
            return await self._divided(s, quotient, s.bits)
        # Two steps: entries of short rows would leave no room for a product with both powers. Always two where they
        # are rounds, which must not depend on the rows a mask leaves out.
        return await self._divided(s, await rescale(s, quotient), 0)
