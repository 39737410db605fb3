"""simpy's environment in integer nanoseconds, stepped by the loop and by nobody else."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from operator import index
from typing import Any, NoReturn

import simpy
from simpy.events import NORMAL, URGENT, Event, EventPriority

from comet_sim.kernel.streams import stream_key

__all__ = ["DirectEnvironment", "Due", "VirtualEnvironment", "internals_present"]

_MASK = (1 << 64) - 1


def internals_present() -> bool:
    """Return whether this simpy keeps its queue where `DirectEnvironment` looks for it (4.1 does)."""
    environment = simpy.Environment(0)
    try:
        environment.schedule(environment.event(), delay=3)
        [(time, priority, number, _)] = environment._queue
        number_is_next = next(environment._eid) == number + 1
    except (AttributeError, TypeError, ValueError):
        return False
    return (
        type(environment._queue) is list
        and (time, priority, environment._now) == (3, 1, 0)
        and number_is_next
    )


class VirtualEnvironment(simpy.Environment):
    """Environment of a `VirtualLoop` on simpy's public API: whole nanoseconds, no `run` or `step`."""

    def __init__(self) -> None:
        super().__init__(0)

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: Any = 0) -> None:
        """Schedule `event` in `delay` whole nanoseconds; `TypeError` when that is not an integer."""
        super().schedule(event, priority, _whole(delay))

    def advance(self) -> None:
        """Process the next event; for the loop that owns this environment."""
        super().step()

    def step(self) -> NoReturn:
        """Refuse: the loop steps its environment."""
        raise RuntimeError("the environment of a VirtualLoop is stepped by its loop; await the event instead")

    def run(self, until: Any = None) -> NoReturn:
        """Refuse: the loop runs its environment."""
        self.step()


class DirectEnvironment(VirtualEnvironment):
    """Environment whose queue the loop reads and writes itself (`internals_present` must hold).

    Entries are simpy's (time, priority, number, event), or (time, priority, number, callback, argument).
    With a `tie_seed` the numbers of entries that are not urgent are a seeded permutation, so ties are
    served in another order; urgent ones keep theirs, as simpy starts processes in that order.
    """

    def __init__(self, tie_seed: int | None = None) -> None:
        super().__init__()
        self.urgent_id: Callable[[], int] = self._eid.__next__
        self.next_id = self.urgent_id if tie_seed is None else _shuffled(self.urgent_id, tie_seed)

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: Any = 0) -> None:
        """Schedule `event` in `delay` whole nanoseconds; `TypeError` when that is not an integer."""
        self.push(self._now + _whole(delay), priority, event)

    def push(self, when: Any, priority: int, item: Any) -> None:
        """Put `item` in the queue for `when`."""
        number = self.urgent_id() if priority == URGENT else self.next_id()
        heappush(self._queue, (when, priority, number, item))  # type: ignore[misc]


class Due(Event):
    """Event that is due at its time and calls one function, for the path over simpy's public API."""

    _ok = True
    _value = None

    def __init__(self, env: simpy.Environment, callback: Callable[[], object]) -> None:
        super().__init__(env)
        self.callbacks.append(lambda _: callback())  # type: ignore[arg-type]


def _whole(delay: Any) -> int:
    try:
        return index(delay)
    except TypeError:
        raise TypeError(f"virtual time is whole nanoseconds: delay {delay!r} is not an integer") from None


def _shuffled(counter: Callable[[], int], seed: int) -> Callable[[], int]:
    """Return a counter through a keyed bijection of 64-bit integers (the finaliser of SplitMix64)."""
    offset = int.from_bytes(stream_key(seed, "ties")[:8], "little")

    def following() -> int:
        z = (counter() * 0x9E3779B97F4A7C15 + offset) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    return following
