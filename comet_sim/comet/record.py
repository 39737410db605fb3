"""What a run under Comet worked on, for summaries and for runs over shapes: masks, components, the cache."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.components import Components
from comet_sim.comet.indexing import Call
from comet_sim.comet.kv_cache import CometCache

__all__ = ["SparsityRecord", "Worked"]


@dataclass(frozen=True, slots=True)
class Worked:
    """One product with few wanted outputs: its mask's size, active rows and columns, and its components."""

    call: Call
    shape: tuple[int, int]
    rows: int
    columns: int
    found: Components


@dataclass(slots=True)
class SparsityRecord:
    """As server 0 saw it: masks in the order and in the orders they were opened in."""

    masks: list[tuple[Call, NDArray[np.bool_]]] = field(default_factory=list)
    products: list[Worked] = field(default_factory=list)
    cache: CometCache | None = None

    def opened(self, call: Call, mask: NDArray[np.bool_]) -> None:
        """Take an opened mask."""
        self.masks.append((call, mask))

    def worked(self, call: Call, mask: NDArray[np.bool_], found: Components) -> None:
        """Take what a product worked on."""
        rows, columns = int(mask.any(1).sum()), int(mask.any(0).sum())
        self.products.append(Worked(call, (mask.shape[0], mask.shape[1]), rows, columns, found))
