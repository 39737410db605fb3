"""Links on which more than constants decide: chance, outages, rates that change, priority classes.

Messages are whole here; packets matter where an urgent message cuts in and where they get lost. Transports:
`ideal`, `gloo`, and `tcp` in closed form with several classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from comet_sim.network.capacity import capacity_of
from comet_sim.network.config import LinkConfig
from comet_sim.network.draws import Draws
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.line import Chunk, Line
from comet_sim.network.link import Link, one_way_delays
from comet_sim.network.tcp import Window

__all__ = ["Job", "LineLink", "ShapedLink"]


class Job:
    """A message on one hop: when it was handed over, and the parts of its time there, ns."""

    __slots__ = ("arrived", "envelope", "klass", "packets", "propagate", "served", "stall", "start", "wire")

    def __init__(self, envelope: Envelope, klass: int, start: int, packets: int, wire: int) -> None:
        self.envelope = envelope
        self.klass = klass
        self.start = start
        self.packets = packets
        self.wire = wire
        self.served = self.stall = self.propagate = 0
        self.arrived = -1


class _Connection(Protocol):
    """Messages of one class under one transport."""

    def admit(self, job: Job) -> None:
        """Take a message whose sender's host has dealt with it."""


class LineLink(Link):
    """What links with a `Line` have in common: admission after the host, and the parts of a message's time."""

    __slots__ = ("line",)

    def __init__(
        self, clock: Clock, name: str, config: LinkConfig, deliver: Callable[[Envelope], object]
    ) -> None:
        super().__init__(clock, name, config, deliver)
        self.line = Line(clock, self, capacity_of(config), config.classes)

    def send(self, envelope: Envelope) -> None:
        """Take a message now, as `Link.send`."""
        config = self.config
        now = self._clock.now_ns
        packets, wire = config.packets(envelope.payload_bytes)
        klass = max(0, min(envelope.priority, config.classes - 1))
        job = Job(envelope, klass, now, packets, wire)
        if not envelope.wire:
            envelope.wire = wire
        self.messages += 1
        self.payload_bytes += envelope.payload_bytes
        if config.host:
            self._clock.post(now + config.host, self._admit, job)
        else:
            self._admit(job)

    def _admit(self, job: Job) -> None:
        raise NotImplementedError

    def finish(self, job: Job) -> None:
        """Hand over a message whose parts are known; what they leave of its time it was queued."""
        envelope = job.envelope
        host = self.config.host
        queued = self._clock.now_ns - job.start - host - job.served - job.stall - job.propagate
        envelope.host += host
        envelope.queued += queued
        envelope.stall += job.stall
        envelope.serialise += job.served
        envelope.propagate += job.propagate
        self.queued += queued
        self._deliver(envelope)


class ShapedLink(LineLink):
    """One direction with a line of any capacity and a connection for each priority class.

    `queued` includes outages, `propagate` jitter, and `stall` waiting for an acknowledgement, for a lost packet
    to be missed, or for an earlier message of the class.
    """

    __slots__ = ("_connections", "_jitter", "_loss", "round_trip")

    def __init__(
        self,
        clock: Clock,
        name: str,
        config: LinkConfig,
        deliver: Callable[[Envelope], object],
        seed: int = 0,
    ) -> None:
        super().__init__(clock, name, config, deliver)
        self.round_trip = 2 * config.delay
        self._jitter = Draws(seed, name, "jitter") if config.jitter else None
        self._loss = Draws(seed, name, "loss") if config.loss else None
        kind = _Bursts if config.transport == "tcp" else _Stream
        self._connections: list[_Connection] = [kind(self) for _ in range(config.classes)]

    def pair(self, reverse: Link) -> None:
        """Take the time an acknowledgement needs from the link it comes back on."""
        self.round_trip = self.config.delay + reverse.config.delay

    def _admit(self, job: Job) -> None:
        self._connections[job.klass].admit(job)

    def chunk(self, job: Job, packets: int, wire: int, sent: Callable[[Chunk], object]) -> None:
        """Put packets of a message onto the line."""
        full = self.config.mss + self.config.packet_overhead
        self.line.push(Chunk(job.klass, packets, wire, full, sent, job))

    def flight(self, job: Job) -> int:
        """Return how long a message that has left is under way, ns: delay and jitter."""
        config = self.config
        delays = one_way_delays(config, job.envelope.payload_bytes)
        time = delays * config.delay
        if self._jitter is not None:
            time += sum(self._jitter.below(config.jitter + 1) for _ in range(delays))
        return time

    def lose(self, packets: int) -> tuple[int, bool]:
        """Return how many of these packets get lost, and whether the last of them does."""
        if self._loss is None:
            return 0, False
        lost = 0
        last = False
        for _ in range(packets):
            last = self._loss.chance(self.config.loss)
            lost += last
        self.lost += lost
        return lost, last

    def later(self, delay: int, callback: Callable[[Job], object], job: Job) -> None:
        """Call `callback(job)` in `delay` ns."""
        self._clock.post(self._clock.now_ns + delay, callback, job)

    def now(self) -> int:
        """Return virtual time, ns."""
        return self._clock.now_ns


class _Stream:
    """A connection without a window: messages go onto the line at once and are handed over in order.

    A lost packet is missed one round trip after the last of its message has left, and sent again.
    """

    __slots__ = ("_link", "_open", "_ordered")

    def __init__(self, link: ShapedLink) -> None:
        self._link = link
        self._open: deque[Job] = deque()
        self._ordered = link.config.transport != "gloo"

    def admit(self, job: Job) -> None:
        if self._ordered:
            self._open.append(job)
        self._send(job)

    def _send(self, job: Job) -> None:
        self._link.chunk(job, job.packets, job.wire, self._sent)

    def _sent(self, chunk: Chunk) -> None:
        link = self._link
        job: Job = chunk.owner
        job.served += chunk.served
        lost, last = link.lose(job.packets)
        if not lost:
            job.propagate = link.flight(job)
            link.later(job.propagate, self._arrive, job)
            return
        config = link.config
        full = config.mss + config.packet_overhead
        tail = job.wire - (job.packets - 1) * full
        job.packets, job.wire = lost, lost * full - (full - tail if last else 0)
        job.stall += link.round_trip
        link.later(link.round_trip, self._send, job)

    def _arrive(self, job: Job) -> None:
        link = self._link
        if not self._ordered:
            link.finish(job)
            return
        job.arrived = link.now()
        ready = self._open
        while ready and ready[0].arrived >= 0:
            first = ready.popleft()
            first.stall += link.now() - first.arrived
            link.finish(first)


class _Bursts:
    """A TCP connection in closed form: one message at a time, window by window."""

    __slots__ = ("_idle_since", "_link", "_waiting", "_window")

    def __init__(self, link: ShapedLink) -> None:
        self._link = link
        self._window = Window(link.config)
        self._waiting: deque[Job] = deque()
        self._idle_since = -1

    def admit(self, job: Job) -> None:
        self._waiting.append(job)
        if len(self._waiting) == 1:
            if self._idle_since >= 0:
                self._window.wake(self._link.now() - self._idle_since)
            self._burst(job)

    def _burst(self, job: Job) -> None:
        config = self._link.config
        packets = min(job.packets, self._window.packets)
        wire = job.wire
        if packets < job.packets:
            wire = packets * (config.mss + config.packet_overhead)
        job.packets -= packets
        job.wire -= wire
        self._link.chunk(job, packets, wire, self._sent)
        self._window.acknowledged(packets)

    def _sent(self, chunk: Chunk) -> None:
        link = self._link
        job: Job = chunk.owner
        job.served += chunk.served
        if job.packets:
            acknowledged = chunk.began + link.config.time(chunk.full) + link.round_trip
            wait = acknowledged - link.now()
            if wait > 0:
                job.stall += wait
                link.later(wait, self._burst, job)
            else:
                self._burst(job)
            return
        job.propagate = link.config.delay
        link.later(job.propagate, link.finish, job)
        self._waiting.popleft()
        self._idle_since = link.now()
        if self._waiting:
            self._burst(self._waiting[0])
