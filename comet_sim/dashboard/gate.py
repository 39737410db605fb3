"""Where a run is held up between two messages: pauses, steps and pace, all of it outside of virtual time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from statistics import median

from comet_sim.events import Message, Names

__all__ = ["STEPS", "Gate"]

Reached = Callable[[Message], bool]

STEPS = ("round", "op", "token", "stall")
"""How far one can go at once."""

_TICK_S = 0.1
"""How often a held run looks whether it has been told to end."""
_RECENT = 255
_LONG = 2
"""A wait is a stall from this many times the usual one on."""


class Gate:
    """One thread runs, which calls `wait` for each message while `closed`; another turns the handles."""

    def __init__(self, names: Callable[[], Names], *, pace: float | None, paused: bool = False) -> None:
        self.closed = paused or pace is not None
        """Whether messages have to come by here at all."""
        self.paused = paused
        self.pace = pace
        """Virtual seconds a second of wall clock; None: as fast as possible."""
        self.reason = ""
        """What a finished step found."""
        self._names = names
        self._changed = threading.Condition()
        self._reached: Reached | None = None
        self._last: Message | None = None
        self._anchor: tuple[int, float] | None = None

    # The thread that turns the handles

    def pause(self, wanted: bool) -> None:
        """Hold the run up, or let it go on."""
        with self._changed:
            self.paused, self._reached, self.reason = wanted, None, ""
            self._turned()

    def set_pace(self, pace: float | None) -> None:
        """Let virtual time pass at `pace` seconds a second, None: as fast as it can."""
        with self._changed:
            self.pace = pace
            self._turned()

    def step(self, kind: str) -> None:
        """Let the run go on until the next message of another round, op or token, or one long waited for."""
        makers = {
            "round": self._next_round,
            "op": self._next_op,
            "token": self._next_token,
            "stall": self._next_stall,
        }
        with self._changed:
            self._reached, self.paused, self.reason = makers[kind](), False, ""
            self._turned()

    @property
    def stepping(self) -> bool:
        """Whether a step is under way."""
        return self._reached is not None

    def open(self) -> None:
        """Let everything pass from now on."""
        with self._changed:
            self.paused, self.pace, self._reached = False, None, None
            self._turned()

    def _turned(self) -> None:
        self._anchor = None
        self.closed = self.paused or self.pace is not None or self._reached is not None
        self._changed.notify_all()

    # The thread that runs

    def wait(self, record: Message, stopping: Callable[[], bool]) -> None:
        """Return when the message may go on: at once, at its time, or when somebody says so."""
        with self._changed:
            if self._reached is not None and self._reached(record):
                self._reached, self.paused = None, True
            self._last = record
            while not stopping():
                left = self._left(record.delivered)
                if left <= 0:
                    break
                self._changed.wait(min(left, _TICK_S))
            if not (self.paused or self._reached or self.pace is not None):
                self.closed = False

    def _left(self, virtual: int) -> float:
        """Return how long the message has to wait still, s."""
        if self.paused:
            return _TICK_S
        if self.pace is None or self._reached is not None:
            return 0.0
        now = time.monotonic()
        if self._anchor is None or virtual < self._anchor[0]:
            self._anchor = virtual, now
        began, since = self._anchor
        return since + (virtual - began) / 1e9 / self.pace - now

    # What steps look for

    def _next_round(self) -> Reached:
        base = self._last

        def reached(record: Message) -> bool:
            nonlocal base
            if base is None:
                base = record
            # A message that is no round (depth 0) is a step of its own.
            return base is not record and (
                record.depth == 0
                or (record.phase, record.depth, record.path) != (base.phase, base.depth, base.path)
            )

        return reached

    def _next_op(self) -> Reached:
        base = self._last

        def reached(record: Message) -> bool:
            return base is None or (record.phase, record.path) != (base.phase, base.path)

        return reached

    def _next_token(self) -> Reached:
        base = self._token(self._last)

        def reached(record: Message) -> bool:
            found = self._token(record)
            return found is not None and found != base

        return reached

    def _token(self, record: Message | None) -> str | None:
        first = "" if record is None else self._names().text(record.path).partition("/")[0]
        return first if first.startswith("token") else None

    def _next_stall(self) -> Reached:
        seen: dict[int, int] = {}
        waits: deque[int] = deque(maxlen=_RECENT)

        def reached(record: Message) -> bool:
            last = seen.get(record.dst)
            seen[record.dst] = record.delivered
            if last is None:
                return False
            waited = record.delivered - last
            usual = median(waits) if len(waits) > 8 else None
            waits.append(waited)
            if usual is None or waited <= _LONG * usual:
                return False
            self.reason = f"a stall: {waited / usual:.1f} times the usual wait" if usual else "a stall"
            return True

        return reached
