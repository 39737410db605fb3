"""`tcp`: a message's time in closed form, with a window that a connection keeps between messages.

Source of the form: a sender may have a window of w packets under way. Having sent them it waits until the first
is acknowledged, one packet time and a round trip after it began, and goes on with twice as many
(slow start, RFC 5681), until the window covers the pipe or reaches its cap.
"""

from __future__ import annotations

from collections.abc import Callable

from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.link import Link

__all__ = ["TcpLink", "Window"]


class Window:
    """The window of one connection, in packets. How it grows does not depend on time, only on what is sent."""

    __slots__ = ("_cap", "_first", "_idle_reset", "packets")

    def __init__(self, config: LinkConfig) -> None:
        self._cap = config.window_packets
        self._first = config.first_packets
        self._idle_reset = config.idle_reset
        self.packets = self._first

    def wake(self, idle: int) -> None:
        """Begin a message after `idle` ns without traffic."""
        if self._idle_reset is not None and idle >= self._idle_reset:
            self.packets = min(self.packets, self._first)

    def acknowledged(self, packets: int) -> None:
        """Grow by what was sent in one go; a sender that used less than half of its window does not grow."""
        if 2 * packets > self.packets:
            self.packets = min(self.packets + packets, self._cap)


class TcpLink(Link):
    """One direction with one TCP connection on a line of constant rate, without loss.

    Parts of a message's time: `stall` is what the window held it back; `queued` includes that of messages
    before it on the connection.
    """

    __slots__ = ("_round_trip", "_window")

    def __init__(
        self, clock: Clock, name: str, config: LinkConfig, deliver: Callable[[Envelope], object]
    ) -> None:
        super().__init__(clock, name, config, deliver)
        self._window = Window(config)
        self._round_trip = 2 * config.delay

    def pair(self, reverse: Link) -> None:
        """Take the time an acknowledgement needs from the link it comes back on."""
        self._round_trip = self.config.delay + reverse.config.delay

    def send(self, envelope: Envelope) -> None:
        """Take a message now, as `Link.send`."""
        config = self.config
        size = envelope.payload_bytes
        packets, wire = config.packets(size)
        arrive = self._clock.now_ns + config.host
        start = max(arrive, self.busy_until)
        if self.messages:
            self._window.wake(start - self.busy_until)
        end, serialise = self._bursts(start, packets, wire)
        self.busy_until = end
        if not envelope.wire:
            envelope.wire = wire
        envelope.host += config.host
        envelope.queued += start - arrive
        envelope.stall += end - start - serialise
        envelope.serialise += serialise
        envelope.propagate += config.delay
        self.messages += 1
        self.payload_bytes += size
        self.wire_bytes += wire
        self.busy += serialise
        self.queued += start - arrive
        self._clock.post(end + config.delay, self._deliver, envelope)

    def _bursts(self, start: int, packets: int, wire: int) -> tuple[int, int]:
        """Send a message window by window; return when its last bit leaves and the time spent sending."""
        window = self._window
        config = self.config
        full = config.mss + config.packet_overhead
        first_back = self._round_trip + config.time(full)
        now, serialise = start, 0
        while packets > window.packets:
            burst = window.packets
            time = config.time(burst * full)
            serialise += time
            now += max(time, first_back)
            packets -= burst
            wire -= burst * full
            window.acknowledged(burst)
        window.acknowledged(packets)
        time = config.time(wire)
        return now + time, serialise + time
