"""The walk back along what held each event up, from the last event of a phase to its first."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from comet_sim.events import NO_CAUSE
from comet_sim.trace.columns import Ints
from comet_sim.trace.order import Line, line, taken
from comet_sim.trace.phase import Mask, PhaseEvents, dictionary
from comet_sim.trace.windows import Window, Windows

__all__ = ["PARTS", "Segment", "walk"]

PARTS = ("compute", "device_queue", "link_queue", "host", "stall", "serialise", "propagate", "gap")
"""What the time of a step can be spent on.

The queues hold only waiting that no recorded event explains, such as for a link that several routes share; `gap`
is idle time that no recorded event explains.
"""

_HELD = ("start", "cause", "link", "device")


class _After(NamedTuple):
    """Where a segment ends: its last step, and whether the step after that waited for it in line."""

    id: int
    time: int
    """When the last step was out of the way, ns."""
    cut: bool


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of a critical path, in the order of time: `rows` of `events`."""

    events: PhaseEvents
    rows: Ints
    in_line: Mask
    """Whether a step waited for the one before to be out of its way; it counts from then on."""
    before: int
    """Row of the step before the first, -1 when the path begins here."""
    cut: bool
    """Whether the step after the last waited for it in line."""
    start: int
    """Virtual time the phase began, ns."""
    whole: bool
    """Whether `events` are all of the phase."""

    def times(self) -> tuple[Ints, Ints]:
        """Return begin and end of each step's time on the path, ns."""
        events, rows = self.events, self.rows
        begin = np.where(self.in_line, events.release[np.append(self.before, rows[:-1])], events.begin[rows])
        end = np.where(np.append(self.in_line[1:], self.cut), events.release[rows], events.end[rows])
        return begin, end

    def values(self) -> dict[str, Ints]:
        """Return the time of each step by `PARTS`, ns."""
        events, rows = self.events, self.rows
        values = {part: events.part(part)[rows] for part in PARTS if part != "gap"}
        for part in ("device_queue", "link_queue", "host", "stall"):
            values[part] = np.where(self.in_line, 0, values[part])
        values["propagate"] = np.where(np.append(self.in_line[1:], self.cut), 0, values["propagate"])
        begin, end = self.times()
        values["gap"] = begin - np.append(self._end_before(), end[:-1])
        return values

    def table(self) -> pa.Table:
        """Return the steps as rows, see `CriticalPath.steps`."""
        is_message = self.events.is_message[self.rows]
        held = np.where(self.in_line, np.where(is_message, 2, 3), 1)
        if self.before < 0:
            held[:1] = 0
        begin, end = self.times()
        columns = self.events.table(self.rows)
        columns |= {"held_by": dictionary(held, _HELD), "begin": pa.array(begin), "end": pa.array(end)}
        return pa.table(columns | {part: pa.array(values) for part, values in self.values().items()})

    def after(self) -> _After | None:
        """Return the end of the segment before this one, None when the path begins here."""
        if self.before < 0:
            return None
        id, time = self.events.id[self.before], self.events.release[self.before]
        return _After(int(id), int(time), bool(self.in_line[0]))

    def _end_before(self) -> int:
        if self.before < 0:
            return self.start
        ends = self.events.release if self.in_line[0] else self.events.end
        return int(ends[self.before])


def walk(windows: Windows, size: int | None) -> Iterator[Segment]:
    """Yield the critical path from its end to its start, with about `size` events in memory (all when None).

    The path is the same for every size: a step is taken only where its window holds all that could have held it
    up, and else looked at again in a window further back.
    """
    after: _After | None = _After(windows.last_id, windows.finish, cut=False)
    while after is not None:
        segment = _segment(windows, size, after)
        after = segment.after()
        yield segment
        del segment  # else two windows are in memory at once


def _segment(windows: Windows, size: int | None, after: _After) -> Segment:
    while True:
        window = windows.until(after.time, size)
        events, order = window.events, line(window.events)
        known = _known(window, order, windows.first_id)
        place = np.flatnonzero(events.id == after.id)
        if place.size and known[place[0]]:
            break
        # What held it up lies further back than this window reaches.
        assert size is not None and window.floor is not None
        size *= 2
        del window, events, order, known
    held_by = np.where(order.bound, order.before, events.cause)
    rows, before = _chain(held_by, known, int(place[0]))
    return Segment(
        events, rows, order.bound[rows], before, after.cut, windows.start, whole=window.floor is None
    )


def _known(window: Window, order: Line, first_id: int) -> Mask:
    """Return for which events the window holds what held them up."""
    events = window.events
    if window.floor is None:
        return np.ones(len(events), dtype=np.bool_)
    # An event left out was out of the way by then: it can have held up in line only what started by then.
    in_line = (events.wait == 0) | (taken(events) > window.floor)
    outside = (events.cause_id == NO_CAUSE) | (events.cause_id < first_id)
    known: Mask = in_line & (order.bound | outside | (events.cause >= 0))
    return known


def _chain(held_by: Ints, known: Mask, last: int) -> tuple[Ints, int]:
    """Return the rows from the first known one to `last`, and the row before them, -1 when there is none."""
    unknown = (held_by >= 0) & ~known[held_by]
    # A view hands out plain integers without making a list of millions of them first.
    step = np.where(unknown, -2 - held_by, held_by).data
    rows = array("q")
    row = last
    while row >= 0:
        rows.append(row)
        row = step[row]
    return np.array(rows, dtype=np.int64)[::-1], -1 if row == -1 else -2 - row
