"""Stalls: who waited for a message of whom, how long, and what that message's time was made of.

A party is idle while none of its strands has work that is done or could be done: no span between its `ready`
and its `end`. Strands that wait while another of the same party works do not make it idle. An idle time ends
with the party's next event; when a message that arrived at that moment is the event's cause, the whole idle time is
a stall on that message. A party that does nothing more after its last message waited for that one.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from comet_sim.trace.columns import Ints, group, relabel, sums
from comet_sim.trace.filters import Filter, collapse_all
from comet_sim.trace.phase import PhaseEvents, dictionary
from comet_sim.trace.store import Trace

__all__ = ["WAITED_ON", "PartyTime", "StallTotal", "Stalls", "stalls"]

WAITED_ON = ("sender_idle", "sender_compute", "host", "link_queue", "stall", "serialise", "propagate")
"""What a waiting party's time went into: first the sender (waiting itself, then working), then the message's way."""

_ON_THE_WAY = WAITED_ON[2:]

_BUNDLES = "corrections"
# A bundle of corrections serves many ops: the one it held up is that of the event it set free.


class StallTotal(NamedTuple):
    """Time one party waited for messages of another in one op, tokens and layers together; ns."""

    waiter: str
    awaited: str
    op: str
    stalls: int
    total: int
    longest: int
    parts: dict[str, int]
    """By `WAITED_ON`."""


class PartyTime(NamedTuple):
    """How one party spent the phase, ns; the three add up to its duration."""

    party: str
    busy: int
    """Work that was done, or could be done but for its device."""
    stalled: int
    other: int
    """After its last event, or before an event no message explains."""


class Stalls:
    """The stalls of all parties in one phase."""

    def __init__(self, events: PhaseEvents, found: _Found, parties: list[PartyTime]) -> None:
        self.phase = events.phase
        self.parties = parties
        """How each party that has events spent the phase, in the order of their names."""
        self.duration = events.finish - events.start
        """Duration of the phase, ns."""
        self._events = events
        self._found = found

    @cached_property
    def table(self) -> pa.Table:
        """One row a stall, in the order of time.

        Columns: waiter, awaited, path (the op held up), message (id), next (id of the event set free, -1 at
        the end of the phase), begin, end, duration and its parts, `WAITED_ON`, ns.
        """
        events, found = self._events, self._found
        paths, texts = self._paths
        next_id = np.where(found.next >= 0, events.id[found.next], -1)
        columns = {
            "waiter": dictionary(events.dst[0][found.message], events.dst[1]),
            "awaited": dictionary(events.src[0][found.message], events.dst[1]),
            "path": dictionary(paths, texts),
            "message": pa.array(events.id[found.message]),
            "next": pa.array(next_id),
            "begin": pa.array(found.begin),
            "end": pa.array(found.end),
            "duration": pa.array(found.end - found.begin),
        }
        return pa.table(columns | {part: pa.array(values) for part, values in self._parts.items()})

    def totals(self, depth: int | None = None, filters: Filter | None = None) -> list[StallTotal]:
        """Return the stalls by waiter, awaited party and op, collapsed to `depth` components; longest first."""
        events, found = self._events, self._found
        rows = self._kept(filters)
        names = events.dst[1]
        waiter, awaited = events.dst[0][found.message[rows]], events.src[0][found.message[rows]]
        paths, texts = self._paths
        op, ops = relabel(paths[rows], collapse_all(texts, depth))
        first, inverse = group(waiter, awaited, op)
        count = len(first)
        time = (found.end - found.begin)[rows]
        longest = np.zeros(count, dtype=np.int64)
        np.maximum.at(longest, inverse, time)
        number, total = sums(inverse, count), sums(inverse, count, time)
        parts = {part: sums(inverse, count, values[rows]) for part, values in self._parts.items()}
        lines = [
            StallTotal(
                names[waiter[row]], names[awaited[row]], ops[op[row]], int(number[i]), int(total[i]),
                int(longest[i]), {part: int(values[i]) for part, values in parts.items()},
            )
            for i, row in enumerate(first.tolist())
        ]  # fmt: skip
        return sorted(lines, key=lambda each: (-each.total, each[:3]))

    def longest(self, count: int, filters: Filter | None = None) -> pa.Table:
        """Return the `count` longest stalls as rows of `table`, longest first, then in the order of time."""
        rows = self._kept(filters)
        time = (self._found.end - self._found.begin)[rows]
        return self.table.take(pa.array(rows[np.argsort(-time, kind="stable")[:count]]))

    def _kept(self, filters: Filter | None) -> Ints:
        rows = np.arange(len(self._found.message))
        if filters is None:
            return rows
        paths, texts = self._paths
        for pattern in filters.patterns():
            rows = rows[np.array(pattern.matches(texts), dtype=np.bool_)[paths[rows]]]
        link = Filter(link=filters.link)
        return rows[self._events.keep(link)[self._found.message[rows]]]

    @cached_property
    def _paths(self) -> tuple[Ints, list[str]]:
        numbers, texts = self._events.path
        found = self._found
        many = np.array([text == _BUNDLES for text in texts], dtype=np.bool_)[numbers[found.message]]
        return numbers[np.where(many & (found.next >= 0), found.next, found.message)], texts

    @cached_property
    def _parts(self) -> dict[str, Ints]:
        events, found = self._events, self._found
        left = found.end - found.begin
        parts = {}
        for part in reversed(_ON_THE_WAY):
            parts[part] = np.minimum(left, events.part(part)[found.message])
            left = left - parts[part]
        # What is left lies before the message was sent.
        worked = np.zeros(len(left), dtype=np.int64)
        sender = events.src[0][found.message]
        for party in np.unique(sender).tolist():
            rows = np.flatnonzero(sender == party)
            since, sent = found.begin[rows], found.begin[rows] + left[rows]
            done = _work_done(events, party)
            worked[rows] = done.until(sent) - done.until(since)
        parts |= {"sender_compute": worked, "sender_idle": left - worked}
        return {part: parts[part] for part in WAITED_ON}


class _Found(NamedTuple):
    """Stalls in the order of time, int64 (stalls,)."""

    message: Ints
    """Position of the awaited message."""
    next: Ints
    """Position of the event it set free, -1 when none."""
    begin: Ints
    end: Ints


class _Work(NamedTuple):
    """Spans of a device, one after the other: begin, length, and the work before each."""

    start: Ints
    length: Ints
    before: Ints

    def until(self, time: Ints) -> Ints:
        """Return the work done until each `time`, ns."""
        if not len(self.start):
            return np.zeros(len(time), dtype=np.int64)
        place = np.maximum(np.searchsorted(self.start, time, side="right") - 1, 0)
        done: Ints = self.before[place] + np.clip(time - self.start[place], 0, self.length[place])
        return done


def stalls(trace: Trace, phase: str = "online") -> Stalls:
    """Return who waited for whom in `phase`, and for how long; raises `InputError` as `critical_path` does."""
    events = PhaseEvents.of(trace, phase)
    found, parties = [], []
    present = np.union1d(events.src[0], events.dst[0][events.is_message]).tolist()
    for party in sorted(present, key=lambda each: events.dst[1][each]):
        waits, time = _of_party(events, party, events.dst[1][party])
        found.append(waits)
        parties.append(time)
    joined = _Found(*(np.concatenate(each) for each in zip(*found, strict=True)))
    order = np.lexsort((joined.message, joined.begin))
    return Stalls(events, _Found(*(each[order] for each in joined)), parties)


def _of_party(events: PhaseEvents, party: int, name: str) -> tuple[_Found, PartyTime]:
    rows = np.flatnonzero(events.src[0] == party)
    rows = rows[np.lexsort((events.id[rows], events.begin[rows]))]
    begin = events.begin[rows]
    done = np.where(events.is_message[rows], begin, events.end[rows])
    busy_until = np.maximum.accumulate(np.concatenate([[events.start], done]))
    idle = begin - busy_until[:-1]
    cause = events.cause[rows]
    awaited = (idle > 0) & (cause >= 0)
    awaited &= events.is_message[cause] & (events.dst[0][cause] == party) & (events.end[cause] == begin)
    found = _Found(cause[awaited], rows[awaited], busy_until[:-1][awaited], begin[awaited])
    last = _last_message(events, party, int(busy_until[-1]))
    found = _Found(*(np.concatenate(each) for each in zip(found, last, strict=True)))
    busy = int(done.max(initial=events.start)) - events.start - int(idle[idle > 0].sum())
    stalled = int((found.end - found.begin).sum())
    return found, PartyTime(name, busy, stalled, events.finish - events.start - busy - stalled)


def _last_message(events: PhaseEvents, party: int, since: int) -> _Found:
    """Return the wait for the last message, when the party does nothing after it; empty otherwise."""
    none = np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero((events.dst[0] == party) & events.is_message & (events.end > since))
    if not rows.size:
        return _Found(none, none, none, none)
    last = rows[[np.argmax(events.end[rows])]]
    return _Found(last, np.array([-1]), np.array([since]), events.end[last])


def _work_done(events: PhaseEvents, party: int) -> _Work:
    rows = np.flatnonzero((events.src[0] == party) & ~events.is_message)
    start = events.begin[rows] + events.wait[rows]
    order = np.argsort(start, kind="stable")
    start, length = start[order], (events.end[rows] - start)[order]
    return _Work(start, length, np.cumsum(length) - length)
