"""Rescaling of active entries alone: what was skipped is zero at both servers, costs nothing and stays so."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.partial import Partial
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import ShapeTensor
from comet_sim.mpc.truncation import rescale

__all__ = ["rescale_some", "rescale_where"]


async def rescale_where(s: Session, partial: Partial, x: Any, mask: NDArray[np.bool_]) -> Any:
    """Rescale the entries (and all later axes) where a public mask over the first axes holds; others are zero.

    Interactive: 4 bytes an entry, for as many as the mask has; the dealer deals for all. Zero shares would come out
    as shares of a unit in the last place, so they take no part.
    """
    if s.truncation == "local":
        return s.truncate(x)
    entries = await rescale_some(s, partial, s.ops.entries(x, mask), (mask.size, *x.shape[mask.ndim :]))
    return s.ops.spread(entries, mask)


async def rescale_some(s: Session, partial: Partial, entries: Any, whole: tuple[int, ...]) -> Any:
    """Rescale entries, where randomness is dealt for a tensor of the shape `whole`."""
    if s.truncation == "local":
        return s.truncate(entries)
    if s.index not in (0, 1):
        # The dealer, who knows no mask (a refill's is empty there): it deals for all.
        await rescale(s, ShapeTensor(whole))
        return entries
    return await partial.run(s, rescale, entries, whole)
