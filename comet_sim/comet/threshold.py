"""Recall and precision of a score by threshold, and the choice of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.plain import Bools

__all__ = ["Curve", "Floors", "Point"]

_STEP = 0.01
_MOST = 20.0
_EDGES = round(2 * _MOST / _STEP) + 1


@dataclass(frozen=True, slots=True)
class Floors:
    """Least recall and precision wanted."""

    recall: float
    precision: float


@dataclass(frozen=True, slots=True)
class Point:
    """A threshold and what it gives: recall, precision, share of entries above it."""

    delta: float
    recall: float
    precision: float
    density: float


class Curve:
    """Counts of scores above every threshold from -20 to 20 in steps of 0.01, for active and inactive entries."""

    def __init__(self) -> None:
        self._active = np.zeros(_EDGES + 1, np.int64)
        self._inactive = np.zeros(_EDGES + 1, np.int64)

    def add(self, scores: NDArray[np.floating], truth: Bools) -> None:
        """Count scores of any shape and what is true of them."""
        # Bin j holds the scores above threshold j - 1 but not above threshold j.
        bins = np.ceil(np.clip(scores / _STEP, -_MOST / _STEP - 1, _MOST / _STEP + 1)).astype(np.int64)
        bins += round(_MOST / _STEP)
        bins = np.clip(bins, 0, _EDGES)
        self._active += np.bincount(bins[truth], minlength=_EDGES + 1)
        self._inactive += np.bincount(bins[~truth], minlength=_EDGES + 1)

    @property
    def true_density(self) -> float:
        """Share of entries that are active."""
        active, inactive = int(self._active.sum()), int(self._inactive.sum())
        return active / (active + inactive) if active + inactive else 0.0

    def points(self) -> list[Point]:
        """Every threshold, smallest first."""
        hits, false = (counts[::-1].cumsum()[::-1][1:] for counts in (self._active, self._inactive))
        used = hits + false
        active, total = int(self._active.sum()), int(self._active.sum() + self._inactive.sum())
        recall = hits / max(active, 1)
        precision = np.where(used > 0, hits / np.maximum(used, 1), 1.0)
        deltas = np.round((np.arange(_EDGES) * _STEP) - _MOST, 2)
        rows = zip(deltas, recall, precision, used / max(total, 1), strict=True)
        return [Point(*map(float, row)) for row in rows]

    def choose(self, floors: Floors) -> Point:
        """Return the threshold with the largest F1 (harmonic mean) of those that reach both floors.

        Where none does, recall comes first: the largest threshold that reaches its floor, or the smallest at all.
        """
        points = self.points()
        recalled = [point for point in points if point.recall >= floors.recall] or points[:1]
        both = [point for point in recalled if point.precision >= floors.precision]
        return max(both, key=_f1) if both else recalled[-1]


def _f1(point: Point) -> float:
    total = point.recall + point.precision
    return 2 * point.recall * point.precision / total if total else 0.0
