"""Virtual compute: a roofline per party, in integers, so that compute time never depends on the wall clock."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Device", "DeviceProfile"]

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What a party computes on: rates of a roofline, with the source of the figures.

    `ring_ops` is ring multiply-adds a second (0: unlimited), `memory` bytes a second (0: unlimited),
    `launch` ns of fixed cost for each local operation.
    """

    name: str
    ring_ops: int
    memory: int
    launch: int
    source: str

    def cost(self, ring_ops: int, moved: int, launches: int) -> int:
        """Return the time of local work in ns: launches plus the slower of arithmetic and memory traffic."""
        arithmetic = -(-ring_ops * _SECOND // self.ring_ops) if self.ring_ops else 0
        memory = -(-moved * _SECOND // self.memory) if self.memory else 0
        return launches * self.launch + (arithmetic if arithmetic > memory else memory)


class Device:
    """A party's processor: one piece of work at a time, first come first served."""

    __slots__ = ("busy_until", "profile")

    def __init__(self, profile: DeviceProfile) -> None:
        self.profile = profile
        self.busy_until = 0

    def reserve(self, now: int, cost: int) -> tuple[int, int]:
        """Occupy the device for `cost` ns as soon as it is free; return start and end."""
        start = now if now > self.busy_until else self.busy_until
        self.busy_until = start + cost
        return start, self.busy_until
