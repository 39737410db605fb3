"""Running totals of a run: what it cost so far, by part, phase, link and party; the same live and in replay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from comet_sim.dashboard.parts import PARTS
from comet_sim.events import Phase

__all__ = ["BINS", "Depths", "History", "Ints", "Rows", "Spans", "Tally", "spread"]

Ints = NDArray[np.int64]

PHASES = len(Phase)
BINS = 64
"""Most steps of a sparkline's memory."""


class Rows(NamedTuple):
    """Delivered messages in the order of delivery, int64 (messages,); `part` as in `PARTS`, times in ns."""

    phase: Ints
    part: Ints
    src: Ints
    dst: Ints
    payload: Ints
    round: Ints
    """1 where a message is the first of its depth between the servers, in its phase; else 0."""
    created: Ints
    serialise: Ints
    propagate: Ints
    delivered: Ints

    def cut(self, start: int, stop: int) -> Rows:
        """Return rows `start` to `stop`."""
        return Rows(*(column[start:stop] for column in self))


class Spans(NamedTuple):
    """Local work, int64 (spans,), times in ns."""

    party: Ints
    start: Ints
    end: Ints


class Depths:
    """Which depths of messages between the servers have been seen in a phase: each is a round."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = np.zeros(1 << 10, np.bool_)

    def first(self, depth: Ints, between: NDArray[np.bool_]) -> Ints:
        """Return 1 where a message between the servers has a depth that none before it had, else 0, (messages,)."""
        found = np.zeros(len(depth), np.int64)
        at = np.flatnonzero(between)
        values, first = np.unique(depth[at], return_index=True)
        if len(values) and values[-1] >= len(self._seen):
            self._seen = np.append(self._seen, np.zeros(int(values[-1]) + 1, np.bool_))
        new = ~self._seen[values]
        self._seen[values] = True
        found[at[first[new]]] = 1
        return found


def _add(total: Ints, at: Ints, values: Ints | int) -> None:
    np.add.at(total.reshape(-1), at, values)


class Tally:
    """What messages and local work cost so far; parties are numbered as in `parties`."""

    __slots__ = (
        "clock",
        "count",
        "link_busy",
        "link_bytes",
        "link_count",
        "part_bytes",
        "part_count",
        "part_time",
        "parties",
        "rounds",
        "work",
    )  # fmt: skip

    def __init__(self, parties: Sequence[str]) -> None:
        n = len(parties)
        self.parties = tuple(parties)
        self.clock = 0
        """Delivery of the last message, ns."""
        self.count = 0
        self.rounds = np.zeros(PHASES, np.int64)
        """Distinct depths of messages between the servers, a phase each."""
        # Time: how far each message moved the clock on, so that the times of all parts add up to the clock.
        self.part_time, self.part_bytes, self.part_count = (
            np.zeros((PHASES, len(PARTS)), np.int64) for _ in range(3)
        )
        self.link_bytes, self.link_busy, self.link_count = (
            np.zeros((PHASES, n, n), np.int64) for _ in range(3)
        )
        self.work = np.zeros((PHASES, n), np.int64)

    def copy(self) -> Tally:
        """Return a tally that goes on from here."""
        made = Tally(self.parties)
        made.clock, made.count = self.clock, self.count
        for name in (
            "rounds",
            "part_time",
            "part_bytes",
            "part_count",
            "link_bytes",
            "link_busy",
            "link_count",
            "work",
        ):
            setattr(made, name, getattr(self, name).copy())
        return made

    def add(self, rows: Rows) -> None:
        """Count messages that follow those counted before."""
        if not len(rows.delivered):
            return
        n = len(self.parties)
        part = rows.phase * len(PARTS) + rows.part
        link = (rows.phase * n + rows.src) * n + rows.dst
        _add(self.part_time, part, np.diff(rows.delivered, prepend=self.clock))
        _add(self.part_bytes, part, rows.payload)
        _add(self.part_count, part, 1)
        _add(self.link_bytes, link, rows.payload)
        _add(self.link_busy, link, rows.serialise)
        _add(self.link_count, link, 1)
        _add(self.rounds, rows.phase, rows.round)
        self.clock = int(rows.delivered[-1])
        self.count += len(rows.delivered)

    def add_work(self, spans: Spans, phase: Ints) -> None:
        """Count local work."""
        _add(self.work, phase * len(self.parties) + spans.party, spans.end - spans.start)


class History:
    """How busy each of `count` things was, by equal steps of virtual time since `origin`; steps double when full."""

    __slots__ = ("busy", "origin", "width")

    def __init__(self, count: int, origin: int = 0, width: int = 1_000) -> None:
        self.origin = origin
        self.width = width
        self.busy = np.zeros((count, BINS), np.int64)

    def add(self, which: Ints, begin: Ints, end: Ints) -> None:
        """Count spans of time [begin, end), ns, of the things `which`; what lies before `origin` is left out."""
        if not len(which):
            return
        last = int(end.max())
        while last - self.origin >= self.width * BINS:
            self.busy[:, : BINS // 2] = self.busy[:, ::2] + self.busy[:, 1::2]
            self.busy[:, BINS // 2 :] = 0
            self.width *= 2
        begin = np.maximum(begin, self.origin) - self.origin
        end = np.maximum(end - self.origin, begin)
        self.busy += spread(which, begin, end, self.width, self.busy.shape)

    def levels(self, clock: int) -> NDArray[np.float64]:
        """Return the busy share of each step so far, (count, steps), at most 1."""
        passed = max(1, clock - self.origin)
        steps = min(BINS, -(-passed // self.width))
        size = np.full(steps, self.width, np.float64)
        size[-1] = passed - (steps - 1) * self.width or self.width
        shares: NDArray[np.float64] = np.minimum(1.0, self.busy[:, :steps] / size)
        return shares


def spread(which: Ints, begin: Ints, end: Ints, width: int, shape: tuple[int, ...]) -> Ints:
    """Return how much of the spans [begin, end) falls into each step of `width` ns, (things, steps), exactly."""
    found = np.zeros(shape, np.int64)
    more = np.zeros((shape[0], shape[1] + 1), np.int64)
    last_step = shape[1] - 1
    first, last = np.minimum(begin // width, last_step), np.minimum(end // width, last_step)
    inside = first == last
    np.add.at(found, (which[inside], first[inside]), (end - begin)[inside])
    across = ~inside
    thing, low, high = which[across], first[across], last[across]
    np.add.at(found, (thing, low), (low + 1) * width - begin[across])
    np.add.at(found, (thing, high), end[across] - high * width)
    # Steps that a span fills wholly: up where they begin, down where they end.
    np.add.at(more, (thing, low + 1), width)
    np.add.at(more, (thing, high), -width)
    found += np.cumsum(more, 1)[:, :-1]
    return found
