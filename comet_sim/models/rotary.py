"""Rotary positions: the public tables of cosines and sines by which queries and keys are turned."""

from __future__ import annotations

from math import pi

import numpy as np
from numpy.typing import NDArray

from comet_sim.models.config import Rope

__all__ = ["rotary_tables"]

Floats = NDArray[np.float64]


def _frequencies(rope: Rope, head_dim: int) -> Floats:
    """Radians that each pair of dimensions turns by a position: (head_dim / 2,)."""
    frequencies = rope.theta ** (-np.arange(0, head_dim, 2) / head_dim)
    if rope.scaling == "linear":
        frequencies = frequencies / rope.factor
    elif rope.scaling == "llama3":
        turns = rope.original_positions * frequencies / (2 * pi)
        kept = np.clip((turns - rope.low_turns) / (rope.high_turns - rope.low_turns), 0.0, 1.0)
        frequencies = frequencies * (kept + (1 - kept) / rope.factor)
    return np.asarray(frequencies, np.float64)


def rotary_tables(rope: Rope, head_dim: int, start: int, count: int) -> tuple[Floats, Floats]:
    """Tables c and s for positions from `start`, each (count, head_dim): y = x * c + swap(x) * s.

    `swap` exchanges the two halves of a head. Dimension i is paired with i + head_dim / 2; the sign of the
    turn is in s. Source: Su et al. 2021, in the arrangement of transformers.
    """
    angles = np.arange(start, start + count)[:, None] * _frequencies(rope, head_dim)
    cosines, sines = np.cos(angles), np.sin(angles)
    return np.concatenate((cosines, cosines), 1), np.concatenate((-sines, sines), 1)
