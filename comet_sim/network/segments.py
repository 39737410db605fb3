"""`tcp-segments`: TCP packet by packet, with acknowledgements that share the line of the other direction.

For lines on which the closed form of `tcp` is wrong: loss, small queues, jitter, rates that change, large
messages both ways at once. A connection per class and direction; a relay hop has connections of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from comet_sim.network.config import LinkConfig
from comet_sim.network.draws import Draws
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.link import Link
from comet_sim.network.packets import Packet
from comet_sim.network.sending import Sender
from comet_sim.network.shaped import Job, LineLink

__all__ = ["SegmentLink"]


class SegmentLink(LineLink):
    """One direction whose line carries packets: data of its own connections, acknowledgements of the other's.

    Counters: `wire_bytes` and `busy` are all that the line carried, sent again and acknowledgements
    included; `dropped` packets found the queue full, `lost` ones were lost under way. Of a message's time,
    `propagate` is delay and jitter of the packet that completes it, `serialise` that of its packets, and
    `stall` the time in which its class had nothing on the line: a closed window, a loss not yet noticed.
    """

    __slots__ = ("_connections", "_jitter", "_last_arrival", "_loss", "reverse")

    def __init__(
        self,
        clock: Clock,
        name: str,
        config: LinkConfig,
        deliver: Callable[[Envelope], object],
        seed: int = 0,
    ) -> None:
        super().__init__(clock, name, config, deliver)
        self.reverse: SegmentLink | int = config.delay
        self._jitter = Draws(seed, name, "jitter") if config.jitter else None
        self._loss = Draws(seed, name, "loss") if config.loss else None
        self._last_arrival = [0] * config.classes
        self._connections = [Sender(self, klass, clock) for klass in range(config.classes)]

    def pair(self, reverse: Link) -> None:
        """Send acknowledgements over `reverse`; over one of another transport they take its delay and no room."""
        self.reverse = reverse if isinstance(reverse, SegmentLink) else reverse.config.delay

    def _admit(self, job: Job) -> None:
        self._connections[job.klass].admit(job)

    def transmit(self, packet: Packet) -> None:
        """Put a packet into the queue before the line, where there is room."""
        line = self.line
        queue = self.config.queue
        if queue is not None and line.waiting_bytes + packet.size > queue:
            self.dropped += 1
        else:
            line.push(packet)

    def left(self, packet: Packet) -> None:
        """Let a packet whose last bit has left arrive after its delay, if chance has it so."""
        config = self.config
        if self._loss is not None and self._loss.chance(config.loss):
            self.lost += 1
            return
        now = self._clock.now_ns
        flight = config.delay
        if self._jitter is not None:
            # Routers keep the order of a connection's packets: a late one holds up those behind it.
            last = self._last_arrival
            flight = max(flight + self._jitter.below(config.jitter + 1), last[packet.klass] - now)
            last[packet.klass] = now + flight
        packet.flight = flight
        self._clock.post(now + flight, packet.arrived, packet)
