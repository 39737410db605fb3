"""A line that several connections share: the lowest class first, cut in only between packets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from comet_sim.network.capacity import NO_CREDIT, Capacity
from comet_sim.network.envelope import Clock
from comet_sim.network.link import Link

__all__ = ["Chunk", "Line"]


class Chunk:
    """Packets of one connection that go onto the line together: all of `full` bytes but the last.

    `wire` bytes in all; `sent(chunk)` is called when the last has left. `began` is when the first packet's
    service began, `served` the ns of service without outages, `idle` how long the class had nothing on the
    line in the whole run when this chunk had left.
    """

    __slots__ = ("began", "full", "idle", "klass", "owner", "packets", "sent", "served", "wire")

    def __init__(
        self, klass: int, packets: int, wire: int, full: int, sent: Callable[[Any], object], owner: Any
    ) -> None:
        self.klass = klass
        self.packets = packets
        self.wire = wire
        self.full = full
        self.sent = sent
        self.owner = owner
        self.began = -1
        self.served = self.idle = 0


class Line:
    """The transmitter of one direction: a queue a class, first in, first out, and one chunk in service.

    It counts its `busy` ns of service (without outages) and `wire_bytes` in its link; `waiting_bytes` are in
    the queues now.
    """

    __slots__ = (
        "_backlog",
        "_capacity",
        "_clock",
        "_credit",
        "_current",
        "_end",
        "_idle",
        "_idle_since",
        "_link",
        "_next_credit",
        "_queues",
        "_serving",
        "_start",
        "_version",
        "waiting_bytes",
    )

    def __init__(self, clock: Clock, link: Link, capacity: Capacity, classes: int) -> None:
        self._clock = clock
        self._link = link
        self._capacity = capacity
        self._queues: list[deque[Chunk]] = [deque() for _ in range(classes)]
        self._current: Chunk | None = None
        self._start = self._end = self._serving = self._version = 0
        self._credit = self._next_credit = NO_CREDIT
        self._backlog = [0] * classes
        self._idle = [0] * classes
        self._idle_since = [0] * classes
        self.waiting_bytes = 0

    def idle(self, klass: int) -> int:
        """Return for how long, up to now, the class has had nothing on the line, ns."""
        idle = self._idle[klass]
        return idle if self._backlog[klass] else idle + self._clock.now_ns - self._idle_since[klass]

    def push(self, chunk: Chunk) -> None:
        """Take a chunk now; a less urgent one in service gives way after the packet it is sending."""
        klass = chunk.klass
        if not self._backlog[klass]:
            self._idle[klass] += self._clock.now_ns - self._idle_since[klass]
        self._backlog[klass] += 1
        current = self._current
        if current is None:
            self._serve(chunk)
            return
        self._queues[klass].append(chunk)
        self.waiting_bytes += chunk.wire
        if klass < current.klass and self._serving > 1:
            self._cut(current)

    def _serve(self, chunk: Chunk) -> None:
        now = self._clock.now_ns
        if chunk.began < 0:
            chunk.began = now
        self._current = chunk
        self._start = now
        self._serving = chunk.packets
        self._credit = self._next_credit
        self._schedule(chunk.wire)

    def _schedule(self, wire: int) -> None:
        end, blocked, self._next_credit = self._capacity.serve(self._start, wire, self._credit)
        self._end = end - blocked
        self._version += 1
        self._clock.post(end, self._done, self._version)

    def _cut(self, chunk: Chunk) -> None:
        """Let the chunk in service end with the packet it is sending."""
        now = self._clock.now_ns
        low, high = 1, self._serving
        while low < high:
            middle = (low + high) // 2
            if self._capacity.serve(self._start, middle * chunk.full, self._credit)[0] >= now:
                high = middle
            else:
                low = middle + 1
        if low < self._serving:
            self._serving = low
            self._schedule(low * chunk.full)

    def _done(self, version: int) -> None:
        if version != self._version:
            return  # cut short meanwhile
        chunk = self._current
        assert chunk is not None
        rest = chunk.packets - self._serving
        sent = self._serving * chunk.full if rest else chunk.wire
        time = self._end - self._start
        chunk.served += time
        chunk.packets = rest
        chunk.wire -= sent
        link = self._link
        link.busy += time
        link.wire_bytes += sent
        klass = chunk.klass
        if rest:
            self._queues[klass].appendleft(chunk)
            self.waiting_bytes += chunk.wire
        else:
            self._backlog[klass] -= 1
            if not self._backlog[klass]:
                self._idle_since[klass] = self._clock.now_ns
            chunk.idle = self._idle[klass]
            # A connection that goes on at once must not lose its turn: it queues before the next is chosen.
            self._serving = 0
            chunk.sent(chunk)
        self._current = None
        for queue in self._queues:
            if queue:
                following = queue.popleft()
                self.waiting_bytes -= following.wire
                self._serve(following)
                return
