"""A phase in windows: as many of its events at once as memory should hold, from its end to its start."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from comet_sim.trace.columns import ints
from comet_sim.trace.phase import COLUMNS, PhaseEvents, inside, refuse_empty
from comet_sim.trace.store import Trace

__all__ = ["Window", "Windows"]


class Window(NamedTuple):
    """Some events of a phase, and what is known of those left out."""

    events: PhaseEvents
    floor: int | None
    """The events left out that matter to those inside all ended at this time or before, ns; None: there are none."""


class _Extent(NamedTuple):
    """What one block of a table holds of the phase; times in ns."""

    table: str
    block: int
    rows: int
    begin: int
    end: int


class Windows:
    """The blocks of a phase by time; raises `InputError` as `PhaseEvents` does."""

    def __init__(self, trace: Trace, phase: str) -> None:
        self._trace = trace
        self._phase = phase
        self._extents: list[_Extent] = []
        self.first_id = np.iinfo(np.int64).max
        """Least id of the phase: a cause below it lies outside."""
        self.last_id = -1
        """Id of the event that ends the phase: the latest end, then the highest id."""
        finish = -1
        for table, begin, end in (("messages", "created", "delivered"), ("compute", "ready", "end")):
            for block, rows in enumerate(trace.blocks(table, ("id", "phase", begin, end))):
                kept = inside(rows, phase)
                if not kept.size:
                    continue
                id, last = ints(rows, "id")[kept], ints(rows, end)[kept]
                extent = _Extent(table, block, len(kept), int(ints(rows, begin)[kept].min()), int(last.max()))
                self._extents.append(extent)
                self.first_id = min(self.first_id, int(id.min()))
                candidate = int(id[last == extent.end].max())
                if (extent.end, candidate) > (finish, self.last_id):
                    finish, self.last_id = extent.end, candidate
        refuse_empty(trace, phase, bool(self._extents))
        self.start = min(extent.begin for extent in self._extents)
        """Virtual time the phase's first event began, ns."""
        self.finish = finish
        """Virtual time its last event ended, ns."""

    def until(self, time: int, size: int | None) -> Window:
        """Return about `size` events (all when None) that began at `time` or before, those that ended last."""
        before = sorted((each for each in self._extents if each.begin <= time), key=lambda each: -each.end)
        taken = len(before)
        if size is not None:
            reached = np.cumsum([each.rows for each in before])
            taken = int(np.searchsorted(reached, size)) + 1
        blocks = sorted(before[:taken])
        floor = max((each.end for each in before[taken:]), default=None)
        messages, compute = (self._read(name, blocks) for name in COLUMNS)
        return Window(PhaseEvents(messages, compute, self._phase, self._trace.where), floor)

    def _read(self, name: str, blocks: list[_Extent]) -> pa.Table:
        return self._trace.read(name, COLUMNS[name], [each.block for each in blocks if each.table == name])
