"""The far end of a `tcp-segments` connection: order, delivery, delayed acknowledgements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from comet_sim.network.envelope import Clock
from comet_sim.network.packets import Packet, Stretch

if TYPE_CHECKING:
    from comet_sim.network.segments import SegmentLink

__all__ = ["Receiver"]

_LATEST = 40 * 10**6  # ns an acknowledgement waits for a second packet (Linux; RFC 1122 allows 500 ms)
_AT_ONCE = 16  # packets acknowledged one by one at first, and after one that is out of order (Linux)


class Receiver:
    """Puts packets in order, hands over messages and acknowledges: every second packet, as RFC 5681 allows.

    `log` holds the transmissions that have arrived and that the sender does not know of: it takes them
    from the left. `known(packet)` is called with each acknowledgement that reaches the sender.
    """

    __slots__ = ("_clock", "_early", "_expected", "_held", "_known", "_link", "_stretches", "_taken", "log")

    def __init__(self, link: SegmentLink, clock: Clock, known: Callable[[Any], object]) -> None:
        self._link = link
        self._clock = clock
        self._known = known
        self._early: set[int] = set()
        self._expected = 0
        self._taken = 0
        self._held: Packet | None = None
        self._stretches: deque[Stretch] = deque()
        self.log: deque[int] = deque()

    def expect(self, stretch: Stretch) -> None:
        """Learn of a message's place in the stream."""
        self._stretches.append(stretch)

    def take(self, packet: Packet) -> None:
        """Take a packet that has arrived."""
        plain = packet.sequence == self._expected and not self._early
        self._place(packet)
        self.log.append(packet.order)
        self._taken = self._taken + 1 if plain else 0
        if plain and self._held is None and self._taken > _AT_ONCE:
            self._held = packet
            self._clock.post(self._clock.now_ns + _LATEST, self._late, packet)
        else:
            self._held = None
            self._acknowledge(packet)

    def _place(self, packet: Packet) -> None:
        """Put a packet into its place in the stream, and hand over the messages that are whole now."""
        sequence = packet.sequence
        expected = self._expected
        early = self._early
        if sequence < expected or sequence in early:
            return  # sent again although it had come
        packet.owner.job.served += packet.served
        if sequence > expected:
            early.add(sequence)
            return
        expected += 1
        while early and expected in early:
            early.remove(expected)
            expected += 1
        self._expected = expected
        stretches = self._stretches
        while stretches and stretches[0].last < expected:
            stretch = stretches.popleft()
            job = stretch.job
            job.propagate = packet.flight
            job.stall = packet.idle - stretch.idle
            self._link.finish(job)

    def _late(self, packet: Packet) -> None:
        if self._held is packet:
            self._held = None
            self._acknowledge(packet)

    def _acknowledge(self, packet: Packet) -> None:
        reverse = self._link.reverse
        if isinstance(reverse, int):
            self._clock.post(self._clock.now_ns + reverse, self._known, packet)
            return
        klass = min(packet.klass, reverse.config.classes - 1)
        answer = Packet(reverse, klass, self._link.config.packet_overhead, None, self._known)
        answer.order = packet.order
        reverse.transmit(answer)
