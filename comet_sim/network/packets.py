"""Packets of `tcp-segments`, and the messages they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from comet_sim.network.line import Chunk

if TYPE_CHECKING:
    from comet_sim.network.segments import SegmentLink
    from comet_sim.network.shaped import Job

__all__ = ["Packet", "Stretch"]


class Packet(Chunk):
    """A packet on its way: `owner` is its `Stretch`, None for an acknowledgement; `arrived(packet)` is called.

    `sequence` numbers the connection's packets, `order` its transmissions; `flight` is its delay and jitter, ns.
    """

    __slots__ = ("arrived", "flight", "order", "sent_at", "sequence", "size")

    def __init__(
        self,
        link: SegmentLink,
        klass: int,
        size: int,
        owner: Stretch | None,
        arrived: Callable[[Any], object],
    ) -> None:
        super().__init__(klass, 1, size, size, link.left, owner)
        self.arrived = arrived
        self.size = size
        self.sequence = self.order = self.flight = 0
        self.sent_at = -1


class Stretch:
    """A message's place in the stream of its connection: packets `first` to `last`, the last of `tail` bytes.

    `idle` is how long the class had nothing on the line in the whole run when the message came, ns.
    """

    __slots__ = ("first", "idle", "job", "last", "tail")

    def __init__(self, job: Job, first: int, full: int, idle: int) -> None:
        self.job = job
        self.first = first
        self.last = first + job.packets - 1
        self.tail = job.wire - (job.packets - 1) * full
        self.idle = idle
