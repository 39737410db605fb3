"""The near end of a `tcp-segments` connection: what is under way, what is missing, how much may be sent."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from comet_sim.errors import InputError
from comet_sim.network.congestion import Congestion, RetransmissionTimer
from comet_sim.network.envelope import Clock
from comet_sim.network.packets import Packet, Stretch
from comet_sim.network.receiving import Receiver

if TYPE_CHECKING:
    from comet_sim.network.segments import SegmentLink
    from comet_sim.network.shaped import Job

__all__ = ["Sender"]

_REORDERING = 3  # packets sent later that must have arrived before one counts as lost (RFC 5681)
_GIVE_UP = 15  # times in a row the timer may expire (Linux's tcp_retries2)


class Sender:
    """One connection's sender, with the receiver at its far end.

    A program hands packets over through a socket's buffer and is woken when a third of that is free, as in
    Linux. Acknowledgements name all transmissions that have arrived (RFC 2018).
    """

    __slots__ = (
        "_buffer",
        "_clock",
        "_congestion",
        "_deadline",
        "_flight",
        "_full",
        "_klass",
        "_last_sent",
        "_limited",
        "_link",
        "_missing",
        "_next",
        "_order",
        "_probe",
        "_receiver",
        "_recovered",
        "_room",
        "_sequence",
        "_timer",
        "_timing",
        "_unsent",
    )

    def __init__(self, link: SegmentLink, klass: int, clock: Clock) -> None:
        config = link.config
        self._link = link
        self._klass = klass
        self._clock = clock
        self._full = config.mss + config.packet_overhead
        self._congestion = Congestion(config)
        self._timer = RetransmissionTimer()
        self._receiver = Receiver(link, clock, self.acknowledged)
        self._unsent: deque[Stretch] = deque()
        self._sequence = 0  # of the next message's first packet
        self._next = 0  # of the next new packet
        self._order = 0  # of the next transmission
        self._flight: dict[int, Packet] = {}  # by order, so the oldest comes first
        self._missing: deque[Packet] = deque()
        self._probe = -1  # transmission after a timeout whose fate is not known yet
        self._recovered = 0  # losses of transmissions before this one have shrunk the window already
        self._limited = 0  # most packets under way since the connection last fell idle
        self._last_sent = 0
        self._deadline = 0
        self._timing = False
        self._buffer = config.buffer_packets
        self._room = 0

    def admit(self, job: Job) -> None:
        """Take a message whose sender's host has dealt with it."""
        stretch = Stretch(job, self._sequence, self._full, self._link.line.idle(self._klass))
        self._sequence = stretch.last + 1
        self._unsent.append(stretch)
        self._receiver.expect(stretch)
        if len(self._unsent) == 1:
            self._refill(0)
        reset = self._link.config.idle_reset
        now = self._clock.now_ns
        if reset is not None and not self._flight and self._order and now - self._last_sent >= reset:
            self._congestion.idle()
        self._send()

    def acknowledged(self, answer: Packet) -> None:
        """Learn that all transmissions in the receiver's log up to that of `answer` have arrived.

        An acknowledgement names all that has arrived, so one that is lost is made up for by the next.
        """
        through = answer.order
        flight = self._flight
        log = self._receiver.log
        before = len(flight)
        known = 0
        newest: Packet | None = None
        while log and log[0] <= through:
            packet = flight.pop(log.popleft(), None)
            if packet is not None:
                known += 1
                newest = packet
        if newest is None:
            return
        now = self._clock.now_ns
        round_trip = now - newest.sent_at
        congestion = self._congestion
        self._timer.sample(round_trip)
        congestion.observe(round_trip, newest.order, self._order)
        self._find_losses(newest.order)
        if newest.order >= self._recovered:
            full = congestion.packets
            if 2 * max(self._limited, before) > full if congestion.slow() else before >= full:
                congestion.acknowledged(known, now)
        if not flight:
            self._limited = 0
        self._refill(self._buffer // 3)
        self._arm()
        self._send()

    def _refill(self, least: int) -> None:
        """Let the program put more packets into the socket's buffer if at least so many have room."""
        held = len(self._flight) + len(self._missing)
        if self._buffer - held - self._room >= least:
            self._room = self._buffer - held

    def _send(self) -> None:
        """Send what the window lets through, lost packets first."""
        flight = self._flight
        window = self._congestion.packets
        batch: list[Packet] = []
        while len(flight) < window:
            packet = self._following()
            if packet is None:
                break
            packet.order = self._order
            flight[packet.order] = packet
            self._order += 1
            batch.append(packet)
        if batch:
            self._transmit(batch)

    def _transmit(self, batch: list[Packet]) -> None:
        now = self._clock.now_ns
        self._limited = max(self._limited, len(self._flight))
        self._last_sent = now
        self._arm()
        for packet in batch:
            packet.sent_at = now
            self._link.transmit(packet)

    def _following(self) -> Packet | None:
        if self._missing:
            return self._again(self._missing.popleft())
        if not self._unsent or not self._room:
            return None
        self._room -= 1
        stretch = self._unsent[0]
        sequence = self._next
        self._next += 1
        last = sequence == stretch.last
        if last:
            self._unsent.popleft()
        return self._packet(stretch.tail if last else self._full, stretch, sequence)

    def _again(self, lost: Packet) -> Packet:
        return self._packet(lost.size, lost.owner, lost.sequence)

    def _packet(self, size: int, stretch: Stretch, sequence: int) -> Packet:
        packet = Packet(self._link, self._klass, size, stretch, self._receiver.take)
        packet.sequence = sequence
        return packet

    def _find_losses(self, newest: int) -> None:
        """Give up transmissions that several later ones have overtaken, or one sent after a timeout."""
        flight = self._flight
        below = newest - _REORDERING + 1
        if 0 <= self._probe <= newest:
            below = self._probe
            if flight and next(iter(flight)) < below:
                self._congestion.timed_out(again=next(iter(flight)) < self._recovered)
                self._recovered = self._order
            self._probe = -1
        while flight:
            order = next(iter(flight))
            if order >= below:
                return
            self._missing.append(flight.pop(order))
            if order >= self._recovered:
                self._congestion.lost()
                self._recovered = self._order

    def _arm(self) -> None:
        """Expect an acknowledgement within the timer's time from now; one heap entry does for many."""
        self._deadline = self._clock.now_ns + self._timer.wait()
        if not self._timing and self._flight:
            self._timing = True
            self._clock.post(self._deadline, self._expire, None)

    def _expire(self, _: None) -> None:
        self._timing = False
        if not self._flight:
            return
        if self._clock.now_ns < self._deadline:
            self._timing = True
            self._clock.post(self._deadline, self._expire, None)
            return
        if self._timer.expiries == _GIVE_UP:
            raise InputError(
                f"link {self._link.name}: its TCP connection has sent {_GIVE_UP} packets again one after the other "
                "and seen no acknowledgement, where real ones give up; check its rate, delay, loss and outages"
            )
        # Acknowledgements may only be late, behind a queue of data: ask with one packet before giving up the
        # rest, as RFC 5682 has it.
        self._timer.expired()
        probe = self._again(next(iter(self._flight.values())))
        self._probe = probe.order = self._order
        self._order += 1
        self._flight[probe.order] = probe
        self._transmit([probe])
