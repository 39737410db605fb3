"""A tiny model of links and devices, first come first served: events in, times and records out.

It knows what each event really waits for, so it can play a run again with one event longer or shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import strategies as st
from trace_records import Record

from comet_sim.events import NO_CAUSE, Compute, Message, Names

PARTIES = ("server0", "server1", "user")


@dataclass(frozen=True)
class Event:
    """Work of `src` (`dst` None) or a message to `dst`; `needs` are earlier events it cannot begin before."""

    src: str
    dst: str | None
    duration: int
    propagate: int = 0
    needs: tuple[int, ...] = ()
    at: int = 0
    path: str = "op"

    @property
    def cause(self) -> int:
        """The one event it needs, where there is at most one."""
        return self.needs[0] if self.needs else NO_CAUSE


class Times(NamedTuple):
    begin: list[int]
    start: list[int]
    release: list[int]
    end: list[int]

    @property
    def finish(self) -> int:
        return max(self.end)


def play(events: Sequence[Event]) -> Times:
    """Give each event its time; links and devices take events in the order of the list."""
    free: dict[tuple[str, str | None], int] = {}
    times = Times([], [], [], [])
    for event in events:
        begin = max([event.at, *(times.end[need] for need in event.needs)])
        start = max(begin, free.get((event.src, event.dst), 0))
        free[event.src, event.dst] = release = start + event.duration
        for column, value in zip(times, (begin, start, release, release + event.propagate), strict=True):
            column.append(value)
    return times


def longer(events: Sequence[Event], which: int, time: int) -> list[Event]:
    """Return the same events with one `time` longer: what follows it in line or needs it has to wait."""
    return [
        replace(each, duration=each.duration + time) if i == which else each for i, each in enumerate(events)
    ]


def names_of_events(events: Sequence[Event]) -> Names:
    names = Names()
    for text in (*PARTIES, *(event.path for event in events)):
        names.intern(text)
    return names


def records_of(events: Sequence[Event]) -> list[Record]:
    """Return what a run would have recorded: as cause the last of the needs, work before messages if both."""
    names = names_of_events(events)
    times = play(events)
    records: list[Record] = []
    for id, (event, begin, start, end) in enumerate(
        zip(events, times.begin, times.start, times.end, strict=True)
    ):
        late = [need for need in event.needs if times.end[need] == begin]
        cause = max(late, key=lambda need: (events[need].dst is None, need), default=NO_CAUSE)
        path, src = names.intern(event.path), names.intern(event.src)
        if event.dst is None:
            records.append(Compute(id, 2, path, src, cause, begin, start, end, 1, 1))
        else:
            records.append(
                Message(
                    id, 2, path, src, names.intern(event.dst), 8, 72, 1, 0, cause, begin,
                    start - begin, 0, 0, event.duration, event.propagate,
                )
            )  # fmt: skip
    return records


@st.composite
def fifo_events(draw: st.DrawFn) -> list[Event]:
    """Events that need at most one other, each with an op path of its own."""
    events = []
    for id in range(draw(st.integers(1, 14))):
        src = draw(st.sampled_from(PARTIES))
        dst = draw(st.sampled_from([None, *(each for each in PARTIES if each != src)]))
        cause = draw(st.integers(-1, id - 1))
        events.append(
            Event(
                src,
                dst,
                draw(st.integers(1, 9)),
                draw(st.integers(0, 9)) if dst else 0,
                (cause,) if cause >= 0 else (),
                0 if cause >= 0 else draw(st.sampled_from([0, 0, 4])),
                f"op{id}",
            )
        )
    return events


@st.composite
def exchanges(draw: st.DrawFn) -> list[Event]:
    """Two servers that exchange messages, with some work before each half: every half is needed by both."""
    events: list[Event] = []
    # What each server's next event needs: its own work, and the half it got.
    needs: list[tuple[int, ...]] = [(), ()]
    propagate = draw(st.integers(0, 6))
    for round in range(draw(st.integers(1, 6))):
        path = f"op{draw(st.integers(0, 1))}"
        halves = []
        works = []
        for index in (0, 1):
            src, dst = PARTIES[index], PARTIES[1 - index]
            own = needs[index]
            # Without work, both would have the same needs as the event before: a run starts with some.
            work = draw(st.integers(0 if round else 1, 9))
            if work:
                events.append(Event(src, None, work, 0, own, path=path))
                own = (len(events) - 1,)
            events.append(Event(src, dst, draw(st.integers(1, 9)), propagate, own, path=path))
            halves.append(len(events) - 1)
            works.append(own)
        needs = [(*works[0], halves[1]), (*works[1], halves[0])]
    return [
        *events,
        *(Event(PARTIES[i], None, draw(st.integers(1, 9)), 0, needs[i], path="last") for i in (0, 1)),
    ]
