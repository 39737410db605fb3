"""A message under way, and what links need of virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from comet_sim.events import Message

if TYPE_CHECKING:
    from comet_sim.network.link import Route

__all__ = ["Clock", "Envelope"]

_new_tuple = tuple.__new__


class Clock(Protocol):
    """What a link needs of virtual time; `kernel.VirtualLoop` provides it."""

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""

    def post(self, when_ns: int, callback: Callable[[Any], object], arg: Any, /) -> object:
        """Call `callback(arg)` at `when_ns`; calls due at the same time keep their order."""


class Envelope:
    """A message under way: who, what and why, and the parts of its time, which links add to.

    `id`, `phase`, `path`, `src`, `dst`, `depth`, `priority`, `cause` as in `events.Message`; `key` addresses
    the receiver's mailbox and `payload` is the buffer itself, both opaque to the network. `created` is the
    virtual time of the send. `priority` is the class on links that have several: 0 is the most urgent, and
    a number beyond a link's last class means that class. `wire` counts the route's first link. The network
    owns the parts and `rest`.
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
