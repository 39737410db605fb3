"""Rows of scores for a softmax: what the public mask leaves out is kept out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.session import Session

__all__ = ["MASKED", "Rows"]

MASKED = -(1 << 20)
"""Stand-in score of a masked entry while the maximum is taken: below any real one, far from the ring's ends."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Scores as rows (r, L), and the entries that the public mask allows; None: all."""

    scores: Any
    keep: NDArray[np.bool_] | None

    @classmethod
    def of(cls, x: Any, allowed: NDArray[np.bool_] | None) -> Rows:
        """Return x (..., L) as rows; `allowed` is broadcast to its shape."""
        shape = x.shape
        keep = None
        if allowed is not None and not allowed.all():
            keep = np.broadcast_to(allowed, shape).reshape(-1, shape[-1])
        return cls(x.reshape((-1, shape[-1])), keep)

    def counts(self) -> NDArray[np.int64]:
        """Return how many entries of each row are allowed (r, 1): public."""
        rows, length = self.scores.shape
        counts = np.full(rows, length) if self.keep is None else self.keep.sum(1)
        return np.maximum(counts, 1)[:, None]

    def for_maximum(self, s: Session) -> Any:
        """Return the scores with masked ones out of the maximum's way: local."""
        if self.keep is None:
            return self.scores
        return s.ops.select(self.scores, self.keep, MASKED << s.bits if s.index == 0 else 0)

    def zeroed(self, s: Session, values: Any) -> Any:
        """Return values of the same shape with masked ones zero at both servers: local."""
        return values if self.keep is None else s.ops.select(values, self.keep, 0)
