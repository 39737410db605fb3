"""Links: one actor a direction, which serialises, queues and propagates messages.

A message's time is decided here and nowhere else. A link needs no task of its own: its
state is the moment it falls idle, and all a message waits for follows from that in integer arithmetic when
it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from comet_sim.errors import InputError
from comet_sim.events import Message
from comet_sim.network.framing import wire_bytes

__all__ = ["LINK_CLASSES", "Clock", "Envelope", "Link", "LinkConfig", "Route"]

_SECOND = 1_000_000_000
_new_tuple = tuple.__new__


class Clock(Protocol):
    """What a link needs of virtual time; `kernel.VirtualLoop` provides it."""

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""

    def post(self, when_ns: int, callback: Callable[[Any], object], arg: Any, /) -> object:
        """Call `callback(arg)` at `when_ns`; calls due at the same time keep their order."""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """One direction of a link, all in integers.

    `rate` bit/s (None: unlimited), `delay` one-way propagation in ns, `packet_overhead` bytes of headers a
    packet, `mss` bytes of message a packet, `host` ns a message spends in its sender before the network
    card. Raises `InputError` on values no link can have.
    """

    rate: int | None
    delay: int
    packet_overhead: int = 66
    mss: int = 1448
    host: int = 0
    transport: str = "ideal"

    def __post_init__(self) -> None:
        if self.rate is not None and self.rate < 1:
            raise InputError(f"link rate is {self.rate} bit/s; it must be at least 1 (None for unlimited)")
        if self.mss < 1:
            raise InputError(f"link mss is {self.mss} bytes; it must be at least 1")
        for name in ("delay", "packet_overhead", "host"):
            if getattr(self, name) < 0:
                raise InputError(f"link {name} is {getattr(self, name)}; it must not be negative")
        if self.transport not in LINK_CLASSES:
            raise InputError(f"link transport is {self.transport!r}; accepted: {', '.join(LINK_CLASSES)}")

    def cost(self, payload: int) -> tuple[int, int]:
        """Return wire bytes and serialisation time (ns, rounded up) of a message with `payload` bytes."""
        wire = wire_bytes(payload, self.mss, self.packet_overhead)
        return wire, 0 if self.rate is None else -(-8 * _SECOND * wire // self.rate)


class Envelope:
    """A message under way: who, what and why, and the parts of its time, which links add to.

    `id`, `phase`, `path`, `src`, `dst`, `depth`, `priority`, `cause` as in `events.Message`; `key` addresses
    the receiver's mailbox and `payload` is the buffer itself, both opaque to the network. `created` is the
    virtual time of the send. `wire` counts the route's first link. The network owns the parts and `rest`.
    """

    __slots__ = (
        "cause",
        "created",
        "depth",
        "dst",
        "host",
        "id",
        "key",
        "path",
        "payload",
        "payload_bytes",
        "phase",
        "priority",
        "propagate",
        "queued",
        "rest",
        "serialise",
        "src",
        "stall",
        "wire",
    )

    def __init__(
        self,
        id: int,
        phase: int,
        path: int,
        src: int,
        dst: int,
        key: Any,
        payload: Any,
        payload_bytes: int,
        depth: int,
        priority: int,
        cause: int,
        created: int,
    ) -> None:
        self.id = id
        self.phase = phase
        self.path = path
        self.src = src
        self.dst = dst
        self.key = key
        self.payload = payload
        self.payload_bytes = payload_bytes
        self.depth = depth
        self.priority = priority
        self.cause = cause
        self.created = created
        self.wire = self.queued = self.host = self.stall = self.serialise = self.propagate = 0
        self.rest: Route | None = None

    def record(self) -> Message:
        """Return the frozen record of this message; its parts are complete once it is delivered."""
        # The named tuple's own constructor costs twice as much, and this runs once a message.
        return _new_tuple(
            Message,
            (
                self.id,
                self.phase,
                self.path,
                self.src,
                self.dst,
                self.payload_bytes,
                self.wire,
                self.depth,
                self.priority,
                self.cause,
                self.created,
                self.queued,
                self.host,
                self.stall,
                self.serialise,
                self.propagate,
            ),
        )


class Link:
    """One direction between two nodes with the `ideal` transport: first come first served at a fixed rate.

    `messages`, `payload_bytes`, `wire_bytes`, `busy` (ns of serialising) and `queued` (ns messages waited)
    count what went through. `deliver` is called with the envelope when its last bit has arrived.
    """

    __slots__ = (
        "_clock",
        "_costs",
        "_deliver",
        "busy",
        "busy_until",
        "config",
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
        self._clock = clock
        self._deliver = deliver
        # A program sends few distinct sizes many times: the division is done once for each.
        self._costs: dict[int, tuple[int, int]] = {}

    def send(self, envelope: Envelope) -> None:
        """Take a message now: schedule its delivery and add this hop's parts to its time.

        On the first hop the envelope's `created` is the present, so that its parts add up to the delivery.
        """
        size = envelope.payload_bytes
        cost = self._costs.get(size)
        if cost is None:
            cost = self._costs[size] = self.config.cost(size)
        wire, serialise = cost
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
        envelope.propagate += config.delay
        self.messages += 1
        self.payload_bytes += size
        self.wire_bytes += wire
        self.busy += serialise
        self._clock.post(end + config.delay, self._deliver, envelope)


Route: TypeAlias = tuple[Link, "Route | None"]
"""The links a message still has to cross, first one first."""


LINK_CLASSES: Mapping[str, type[Link]] = MappingProxyType({"ideal": Link})
"""Link actors by the name of their transport. `ideal` has no windows: the whole rate is there at once."""
