"""A trace as slices on tracks: one track a party, one a direction of a link, and two counters a direction.

Work is a slice on its party's track. A message is a slice on its link's track, for as long as it occupies the line;
what it waited before, and the way to the other side, lie between it and what caused it or follows from it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from comet_sim.trace import Trace
from comet_sim.trace.columns import Ints, codes, ints, relabel

__all__ = ["Counter", "Slices", "Timeline", "Track"]

_MESSAGE = (
    "id",
    "path",
    "src",
    "dst",
    "payload",
    "wire",
    "depth",
    "cause",
    "created",
    "queued",
    "host",
    "stall",
)
_WORK = ("id", "path", "party", "cause", "start", "end")
_WINDOWS = 1000
"""Points of a utilisation counter over the whole of a trace."""


@dataclass(frozen=True, slots=True)
class Track:
    """One line of a timeline; `lane` counts further lines of a link whose messages overlap."""

    kind: str
    """`party` or `link`."""
    name: str
    lane: int = 0


@dataclass(frozen=True, slots=True)
class Slices:
    """Every piece of work and every message, in the order of their starts; times in ns, arrays of equal length."""

    id: Ints
    cause: Ints
    track: Ints
    start: Ints
    end: Ints
    name: Ints
    """Op path, a position in `Timeline.names`."""
    payload: Ints
    """Bytes of the buffer sent, -1 for work."""
    depth: Ints

    def __len__(self) -> int:
        return len(self.id)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time: `values[i]` from `times[i]` (ns) on."""

    name: str
    unit: str
    times: Ints
    values: Ints


@dataclass(frozen=True, slots=True)
class Timeline:
    """All tracks, slices and counters of a trace."""

    tracks: tuple[Track, ...]
    names: tuple[str, ...]
    slices: Slices
    counters: tuple[Counter, ...]

    @classmethod
    def of(cls, trace: Trace) -> Timeline:
        """Lay a trace out; a filtered one keeps the tracks that have something on them."""
        messages = trace.read("messages", (*_MESSAGE, "serialise"), range(trace.block_count("messages")))
        work = trace.read("compute", _WORK, range(trace.block_count("compute")))
        parties, on_party = _labels(work, "party")
        links, on_link = _links(messages)
        start = sum(
            (ints(messages, part) for part in ("created", "queued", "host", "stall")), start=np.int64(0)
        )
        start = np.asarray(start, np.int64)
        end = start + ints(messages, "serialise")
        tracks = [Track("party", name) for name in parties]
        placed = np.zeros(len(messages), np.int64)
        counters: list[Counter] = []
        for number, name in enumerate(links):
            mine = np.flatnonzero(on_link == number)
            lane = lanes(start[mine], end[mine])
            placed[mine] = len(tracks) + lane
            tracks += [Track("link", name, each) for each in range(int(lane.max(initial=0)) + 1)]
            counters.append(_queue(name, messages, start, mine))
            counters.append(_busy(name, start[mine], end[mine]))
        names, named = _names(messages, work)
        columns = {
            "id": (ints(messages, "id"), ints(work, "id")),
            "cause": (ints(messages, "cause"), ints(work, "cause")),
            "track": (placed, on_party),
            "start": (start, ints(work, "start")),
            "end": (end, ints(work, "end")),
            "payload": (ints(messages, "payload"), np.full(len(work), -1, np.int64)),
            "depth": (ints(messages, "depth"), np.full(len(work), -1, np.int64)),
        }
        both = {key: np.concatenate(pair) for key, pair in columns.items()}
        order = np.lexsort((both["id"], both["start"]))
        slices = Slices(name=named[order], **{key: values[order] for key, values in both.items()})
        return cls(tuple(tracks), tuple(names), slices, tuple(each for each in counters if len(each.times)))


def lanes(start: Ints, end: Ints) -> Ints:
    """Return a lane for each interval so that no two of a lane overlap; most need lane 0 only.

    Each pass keeps what starts when all before it have ended, and leaves the rest to the next lane.
    """
    lane = np.zeros(len(start), np.int64)
    left = np.lexsort((end, start))
    number = 0
    while len(left):
        ended = np.maximum.accumulate(end[left])
        free = np.append(True, start[left][1:] >= ended[:-1])
        lane[left[free]] = number
        left = left[~free]
        number += 1
    return lane


def _labels(table: pa.Table, column: str) -> tuple[list[str], Ints]:
    numbers, texts = codes(table, column)
    used = [texts[number] for number in np.unique(numbers).tolist()]
    place = np.full(max(1, len(texts)), -1, np.int64)
    for i, text in enumerate(sorted(used)):
        place[texts.index(text)] = i
    return sorted(used), place[numbers]


def _links(messages: pa.Table) -> tuple[list[str], Ints]:
    src, sources = codes(messages, "src")
    dst, targets = codes(messages, "dst")
    both, inverse = np.unique(src * max(1, len(targets)) + dst, return_inverse=True)
    names = [f"{sources[key // len(targets)]} -> {targets[key % len(targets)]}" for key in both.tolist()]
    numbers, texts = relabel(inverse.astype(np.int64), names) if names else (inverse.astype(np.int64), names)
    return texts, numbers


def _names(messages: pa.Table, work: pa.Table) -> tuple[list[str], Ints]:
    first, texts = codes(messages, "path")
    second, more = codes(work, "path")
    numbers = np.concatenate([first, second + len(texts)])
    if not len(numbers):
        return [], numbers
    new, names = relabel(numbers, [*texts, *more])
    return names, new


def _queue(name: str, messages: pa.Table, start: Ints, mine: Ints) -> Counter:
    """Return the bytes that wait for a link: from when a message was made until it went on the line."""
    created, wire = ints(messages, "created")[mine], ints(messages, "wire")[mine]
    waits = start[mine] > created
    times = np.concatenate([created[waits], start[mine][waits]])
    changes = np.concatenate([wire[waits], -wire[waits]])
    moments, inverse = np.unique(times, return_inverse=True)
    change = np.zeros(len(moments), np.int64)
    np.add.at(change, inverse, changes)
    return Counter(f"waiting for {name}", "bytes", moments.astype(np.int64), np.cumsum(change))


def _busy(name: str, start: Ints, end: Ints) -> Counter:
    """Return the share of each window in which something was on the line, per cent (over 100: shared line)."""
    empty = np.zeros(0, np.int64)
    if not len(start) or end.max() == start.min():
        return Counter(f"use of {name}", "%", empty, empty)
    edges = np.linspace(int(start.min()), int(end.max()), _WINDOWS + 1).astype(np.int64)
    moments = np.concatenate([start, end])
    slope = np.concatenate([np.ones(len(start), np.int64), -np.ones(len(end), np.int64)])
    order = np.argsort(moments, kind="stable")
    moments, rate = moments[order], np.cumsum(slope[order])
    done = np.concatenate([[0], np.cumsum(rate[:-1] * np.diff(moments))])
    spent = np.diff(np.interp(edges, moments, done))
    width = np.maximum(np.diff(edges), 1)
    return Counter(f"use of {name}", "%", edges[:-1], np.rint(100 * spent / width).astype(np.int64))
