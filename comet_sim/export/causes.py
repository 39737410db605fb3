"""Which slice enabled which: the arrows of a timeline."""

from __future__ import annotations

import numpy as np

from comet_sim.export.timeline import Slices
from comet_sim.trace.columns import Ints

__all__ = ["causes"]


def causes(slices: Slices) -> tuple[Ints, Ints]:
    """Return (effect, cause): positions in `slices` of every slice whose cause is in them too, and of that cause."""
    order = np.argsort(slices.id)
    known = slices.id[order]
    if not len(known):
        return order, order
    at = np.minimum(np.searchsorted(known, slices.cause), len(known) - 1)
    effect = np.flatnonzero(known[at] == slices.cause)
    return effect, order[at[effect]]
