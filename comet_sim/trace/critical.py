"""The critical path of a phase: the chain of events that decided when it ended, and where its time went."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from comet_sim.trace.backward import Slack, slack_of
from comet_sim.trace.columns import Ints, sums
from comet_sim.trace.filters import Filter
from comet_sim.trace.order import line
from comet_sim.trace.phase import Mask, PhaseEvents, dictionary
from comet_sim.trace.store import Trace

__all__ = ["PARTS", "CriticalPath", "OpShare", "critical_path", "slack"]

PARTS = ("compute", "device_queue", "link_queue", "host", "stall", "serialise", "propagate", "gap")
"""What the time of a step can be spent on.

The queues hold only waiting that no recorded event explains, such as for a link that several routes share; `gap`
is idle time that no recorded event explains.
"""

_HELD = ("start", "cause", "link", "device")


@dataclass(frozen=True, slots=True)
class OpShare:
    """Time on the critical path spent in one op, ns by part."""

    op: str
    steps: int
    total: int
    parts: dict[str, int]


class CriticalPath:
    """Steps of a critical path in the order of time; `parts` add up to `makespan` exactly."""

    def __init__(self, events: PhaseEvents, rows: Ints, in_line: Mask) -> None:
        self.phase = events.phase
        self.start = events.start
        """Virtual time the phase's first event began, ns."""
        self.end = events.finish
        """Virtual time its last event ended, ns."""
        self._events = events
        self._rows = rows
        # A step held up in line counts from when the one before was out of the way, and that one until then.
        self._in_line = in_line
        self._before_line = np.append(in_line[1:], False)

    @property
    def makespan(self) -> int:
        """Duration of the phase, ns."""
        return self.end - self.start

    @cached_property
    def steps(self) -> pa.Table:
        """One row a step: id, kind, path, src, dst, held_by, begin, end, and the parts in ns.

        `kind` is `message` or `compute`; work of a party has that party as `src` and an empty `dst`. `held_by`
        says what the step before is to it: its `cause`, or the event before it on the `link` or `device`.
        `begin` and `end` are the step's time on the path; its `gap` lies before its `begin`.
        """
        is_message = self._events.is_message[self._rows]
        held = np.where(self._in_line, np.where(is_message, 2, 3), 1)
        held[:1] = 0
        columns = self._events.table(self._rows)
        columns["held_by"] = dictionary(held, _HELD)
        begin, end = self._times
        columns |= {"begin": pa.array(begin), "end": pa.array(end)}
        columns |= {part: pa.array(values) for part, values in self._values.items()}
        return pa.table(columns)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Time by part, ns, all of `PARTS`."""
        return {part: int(values.sum()) for part, values in self._values.items()}

    @cached_property
    def slack(self) -> Slack:
        """How much later each event of the phase could have ended without moving `end`; 0 for all steps."""
        return slack_of(self._events, self._rows)

    def by_op(self, depth: int | None = None, filters: Filter | None = None) -> list[OpShare]:
        """Return the time by op path, tokens and layers collapsed, `depth` components; longest first.

        With `filters`, only of the steps they keep.
        """
        op, ops = self._events.ops(depth)
        op, values = op[self._rows], self._values
        if filters is not None:
            kept = self._events.keep(filters)[self._rows]
            op = op[kept]
            values = {part: each[kept] for part, each in values.items()}
        steps = sums(op, len(ops)).tolist()
        parts = {part: sums(op, len(ops), each).tolist() for part, each in values.items()}
        shares = [
            OpShare(
                text, steps[i], sum(each[i] for each in parts.values()), {k: v[i] for k, v in parts.items()}
            )
            for i, text in enumerate(ops)
            if steps[i]
        ]
        return sorted(shares, key=lambda share: (-share.total, share.op))

    @cached_property
    def _times(self) -> tuple[Ints, Ints]:
        events, rows = self._events, self._rows
        begin = np.where(self._in_line, 0, events.begin[rows])
        begin[1:] += np.where(self._in_line[1:], events.release[rows[:-1]], 0)
        return begin, np.where(self._before_line, events.release[rows], events.end[rows])

    @cached_property
    def _values(self) -> dict[str, Ints]:
        values = {part: self._events.part(part)[self._rows] for part in PARTS if part != "gap"}
        for part in ("device_queue", "link_queue", "host", "stall"):
            values[part] = np.where(self._in_line, 0, values[part])
        values["propagate"] = np.where(self._before_line, 0, values["propagate"])
        begin, end = self._times
        values["gap"] = begin - np.concatenate([[self.start], end[:-1]])
        return values


def critical_path(trace: Trace, phase: str = "online") -> CriticalPath:
    """Walk back from the last event of `phase` (latest end, then highest id) along what held each event up.

    That is the event before it on its link or device when it waited for exactly that one, else its cause. The
    phase lasts from the begin of its first event; causes outside it end the walk. Raises `InputError` when
    the phase has no events or an event begins before its cause ended.
    """
    events = PhaseEvents(trace, phase)
    order = line(events)
    last = np.flatnonzero(events.end == events.finish)
    held_by = np.where(order.bound, order.before, events.cause)
    rows = _walk(held_by, int(last[np.argmax(events.id[last])]))
    return CriticalPath(events, rows, order.bound[rows])


def slack(trace: Trace, phase: str = "online") -> Slack:
    """Return how much later each event of `phase` could have ended without moving the phase's end.

    Raises `InputError` as `critical_path` does.
    """
    return critical_path(trace, phase).slack


def _walk(held_by: Ints, last: int) -> Ints:
    # A view hands out plain integers without making a list of millions of them first.
    step = held_by.data
    rows = array("q")
    row = last
    while row >= 0:
        rows.append(row)
        row = step[row]
    return np.array(rows, dtype=np.int64)[::-1]
