"""What an event of a trace had to wait for: its cause, its place in line, and what its party had yet to get.

These constraints make a graph over the events of a phase, read from the records alone:

- *cause*: the recorded cause had to end.
- *line*: messages of one direction between two parties leave one after the other, and so do spans of one
  device: the one before had to be out of the way.
- *use*: a message that woke nobody was still needed. Half of an exchange between servers is needed by what its
  receiver does after its own half; any other message by the receiver's next event of the same op path.
- *own*: what follows an exchange also needs the work the receiver did for its own half.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from comet_sim.trace.columns import Ints
from comet_sim.trace.phase import Mask, PhaseEvents

__all__ = ["Edges", "Line", "line", "need_edges", "taken"]


class Line(NamedTuple):
    """Who went before whom on links and devices; all (events,)."""

    before: Ints
    """Position of the event that went before, -1 for the first of each line."""
    spare: Ints
    """Time between the one before getting out of the way and this one taking its place, ns."""
    bound: Mask
    """Whether the event waited for exactly the one before: its whole wait is explained."""


class Edges(NamedTuple):
    """Constraints: `later` can slip as soon as `sooner` slips by more than `spare` ns; all (edges,)."""

    sooner: Ints
    later: Ints
    spare: Ints


def line(events: PhaseEvents) -> Line:
    """Return the order in which messages left each link direction, and spans each device."""
    # One number for each line; messages and spans never share one.
    parties = len(events.dst[1])
    lines = np.where(events.is_message, (events.src[0] + 1) * parties + events.dst[0], -1 - events.src[0])
    # Few lines: numpy sorts small numbers by radix, in a tenth of the time.
    small = lines.astype(np.int16) if np.abs(lines).max() < 1 << 15 else lines
    order = np.argsort(small, kind="stable")
    before = np.full(len(events), -1, dtype=np.int64)
    same = lines[order[1:]] == lines[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    raw = np.where(before >= 0, taken(events) - events.release[before], 0)
    bound = (before >= 0) & (events.wait > 0) & (raw == 0)
    # Below 0 where they overlapped (several hops, priorities): then one cannot slip without the other.
    return Line(before, np.maximum(raw, 0), bound)


def taken(events: PhaseEvents) -> Ints:
    """Return when each event took its link or device, ns."""
    found: Ints = np.where(
        events.is_message, events.release - events.part("serialise"), events.begin + events.wait
    )
    return found


def need_edges(events: PhaseEvents, order: Line) -> Iterator[Edges]:
    """Yield all constraints, one kind after the other."""
    absorbed = np.where(order.bound, events.wait, 0)
    yield _edges(events.cause, absorbed)
    yield _edges(order.before, order.spare)
    partner = _partners(events)
    other = _at(partner, events.cause)
    work = _at(events.cause, other)
    # Mostly that is the span before on the same device, which the line says already.
    work[work == order.before] = -1
    yield _after(events, work, np.arange(len(events)), absorbed)
    silent = events.is_message.copy()
    silent[events.cause[events.cause >= 0]] = False
    for message, user in (_exchanges(events, partner, silent), _arrivals(events, partner, silent)):
        yield _after(events, message, user, absorbed)


def _edges(sooner: Ints, spare: Ints) -> Edges:
    later = np.flatnonzero(sooner >= 0)
    return Edges(sooner[later], later, spare[later])


def _after(events: PhaseEvents, sooner: Ints, later: Ints, absorbed: Ints) -> Edges:
    """Return constraints without those that the recorded times contradict."""
    kept = (sooner >= 0) & (sooner < later)
    sooner, later = sooner[kept], later[kept]
    room = events.begin[later] - events.end[sooner]
    kept = room >= 0
    sooner, later = sooner[kept], later[kept]
    return Edges(sooner, later, room[kept] + absorbed[later])


def _at(values: Ints, places: Ints) -> Ints:
    """Return `values[places]`, -1 where the place is -1."""
    return np.where(places >= 0, values[places], -1)


def _partners(events: PhaseEvents) -> Ints:
    """Return for each half of an exchange between two servers the other half, -1 for all other events.

    Both servers run the same program: the nth message of an op path one way belongs to the nth the other way.
    """
    partner = np.full(len(events), -1, dtype=np.int64)
    servers = np.array([text.startswith("server") for text in events.dst[1]], dtype=np.bool_)
    (src, _), (dst, parties) = events.src, events.dst
    rows = np.flatnonzero(events.is_message & servers[src] & servers[dst])
    rows = rows[np.argsort(events.id[rows], kind="stable")]
    low, high = np.minimum(src, dst)[rows], np.maximum(src, dst)[rows]
    place = (events.path[0][rows] * len(parties) + low) * len(parties) + high
    forth = src[rows] < dst[rows]
    there, back = _by_place(rows[forth], place[forth]), _by_place(rows[~forth], place[~forth])
    if len(there[0]) != len(back[0]) or (there[1] != back[1]).any():
        # Uneven counts somewhere: keep the places where they are even.
        there, back = _even(there, back)
    partner[there[0]] = back[0]
    partner[back[0]] = there[0]
    return partner


def _by_place(rows: Ints, place: Ints) -> tuple[Ints, Ints]:
    order = np.argsort(place, kind="stable")
    return rows[order], place[order]


def _even(there: tuple[Ints, Ints], back: tuple[Ints, Ints]) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    places, counts = np.unique(there[1], return_counts=True)
    others, more = np.unique(back[1], return_counts=True)
    shared, here, over = np.intersect1d(places, others, assume_unique=True, return_indices=True)
    good = shared[counts[here] == more[over]]
    kept = [np.isin(half[1], good) for half in (there, back)]
    return (there[0][kept[0]], there[1][kept[0]]), (back[0][kept[1]], back[1][kept[1]])


def _exchanges(events: PhaseEvents, partner: Ints, silent: Mask) -> tuple[Ints, Ints]:
    """Return (message, user): silent halves, and what the receiver did next after sending its own half."""
    message = np.flatnonzero(silent & (partner >= 0))
    half = partner[message]
    work = events.cause[half]
    message, half, work = message[work >= 0], half[work >= 0], work[work >= 0]
    caused = np.flatnonzero(events.cause >= 0)
    span = int(events.id.max()) + 1
    keys = events.cause[caused] * span + events.id[caused]
    order = np.argsort(keys, kind="stable")
    caused, keys = caused[order], keys[order]
    place = np.searchsorted(keys, work * span + events.id[half], side="right")
    found = place < len(keys)
    user = caused[np.minimum(place, len(keys) - 1)] if len(keys) else np.zeros_like(place)
    found &= events.cause[user] == work
    return message[found], user[found]


def _arrivals(events: PhaseEvents, partner: Ints, silent: Mask) -> tuple[Ints, Ints]:
    """Return (message, user): other silent messages, and their receiver's next event of the same op path."""
    message = np.flatnonzero(silent & (partner < 0))
    paths = len(events.path[1])
    by_begin = np.lexsort((events.id, events.begin))
    group = events.src[0] * paths + events.path[0]
    span = len(events) + 1
    order = by_begin[np.argsort(group[by_begin], kind="stable")]
    rank = np.empty(len(events), dtype=np.int64)
    rank[by_begin] = np.arange(len(events))
    keys = group[order] * span + rank[order]
    wanted = events.dst[0][message] * paths + events.path[0][message]
    since = np.searchsorted(events.begin[by_begin], events.end[message], side="left")
    place = np.searchsorted(keys, wanted * span + since, side="left")
    user = order[np.minimum(place, len(order) - 1)]
    found = (place < len(order)) & (group[user] == wanted)
    return message[found], user[found]
