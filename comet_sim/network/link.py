"""Links that need no event of their own: `ideal` and `gloo` on a line of constant rate.

A message's time is decided here, or in the other link classes, and nowhere else. A link needs no task: its
state is the moment it falls idle, and all a message waits for follows from that in integer arithmetic when
it is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.framing import gloo_segments

__all__ = ["GlooLink", "Link", "Route", "one_way_delays"]


def one_way_delays(config: LinkConfig, payload: int) -> int:
    """Return how many one-way delays a message with `payload` bytes takes: one, with gloo several.

    gloo's ring all-reduce keeps two segments under way, and each costs two delays: one for the receiver to
    say that its buffer is ready, one for the bytes. Four delays for more than two words were measured.
    """
    return 2 * -(-gloo_segments(payload) // 2) if config.transport == "gloo" else 1


class Link:
    """One direction between two nodes with the `ideal` transport: first come first served at a fixed rate.

    `messages`, `payload_bytes`, `wire_bytes`, `busy` (ns of serialising) and `queued` (ns messages waited)
    count what went through; `lost` and `dropped` (packets) stay 0 here. `deliver` is called with the
    envelope when its last bit has arrived.
    """

    __slots__ = (
        "_clock",
        "_costs",
        "_deliver",
        "busy",
        "busy_until",
        "config",
        "dropped",
        "lost",
        "messages",
        "name",
        "payload_bytes",
        "queued",
        "wire_bytes",
    )

    def __init__(
        self, clock: Clock, name: str, config: LinkConfig, deliver: Callable[[Envelope], object]
    ) -> None:
        self.name = name
        self.config = config
        self.busy_until = self.busy = self.queued = 0
        self.messages = self.payload_bytes = self.wire_bytes = 0
        self.lost = self.dropped = 0
        self._clock = clock
        self._deliver = deliver
        # A program sends few distinct sizes many times: the division is done once for each.
        self._costs: dict[int, tuple[int, int, int]] = {}

    def pair(self, reverse: Link) -> None:
        """Learn of the link in the other direction, on which acknowledgements come back."""

    def send(self, envelope: Envelope) -> None:
        """Take a message now: schedule its delivery and add this hop's parts to its time.

        On the first hop the envelope's `created` is the present, so that its parts add up to the delivery.
        """
        size = envelope.payload_bytes
        cost = self._costs.get(size)
        if cost is None:
            cost = self._costs[size] = self._cost(size)
        wire, serialise, propagate = cost
        config = self.config
        arrive = self._clock.now_ns + config.host
        start = self.busy_until
        if start < arrive:
            start = arrive
        else:
            waited = start - arrive
            envelope.queued += waited
            self.queued += waited
        self.busy_until = end = start + serialise
        if not envelope.wire:
            envelope.wire = wire
        envelope.host += config.host
        envelope.serialise += serialise
        envelope.propagate += propagate
        self.messages += 1
        self.payload_bytes += size
        self.wire_bytes += wire
        self.busy += serialise
        self._clock.post(end + propagate, self._deliver, envelope)

    def _cost(self, size: int) -> tuple[int, int, int]:
        """Return wire bytes, serialisation and propagation time (ns) of a message of `size` bytes."""
        return *self.config.cost(size), self.config.delay


class GlooLink(Link):
    """The same line under gloo: each message takes the schedule of an all-reduce of its words.

    Both parties of an exchange send a message of one size, and each takes the whole schedule: when they
    start together, as in lockstep, they end together, one all-reduce later. A message of one or two words
    has fewer segments and may overtake a longer one: each is a collective of its own.
    """

    __slots__ = ()

    def _cost(self, size: int) -> tuple[int, int, int]:
        # The line is free while a segment's receiver gets ready: the further delays are propagation.
        return *self.config.cost(size), one_way_delays(self.config, size) * self.config.delay


Route: TypeAlias = tuple[Link, "Route | None"]
"""The links a message still has to cross, first one first."""
