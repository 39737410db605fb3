"""Virtual time in integer nanoseconds on a simpy queue, and all ways to schedule on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from heapq import heapify, heappush
from math import isinf
from operator import index
from typing import Any, TypeVar, TypeVarTuple

from simpy.events import Event, EventPriority

from comet_sim.kernel.bridge import wait_event
from comet_sim.kernel.environment import DirectEnvironment, Due, VirtualEnvironment, internals_present
from comet_sim.kernel.housekeeping import Housekeeping
from comet_sim.kernel.wake import Wake

__all__ = ["Clock", "Timer"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
NS = 1_000_000_000
NORMAL = 1
_COMPACT_ABOVE = 64


class Timer(asyncio.TimerHandle):
    """Cancellable callback due at `when_ns`; None means never (an infinite delay)."""

    __slots__ = ("when_ns",)

    _scheduled: bool

    def __init__(
        self,
        when_ns: int | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: Clock,
        context: Context | None = None,
    ) -> None:
        self.when_ns = when_ns
        super().__init__(float("inf") if when_ns is None else when_ns / NS, callback, args, loop, context)


class Clock(Housekeeping):
    """The scheduling half of a `VirtualLoop`: entries are served by (time, priority, order of scheduling)."""

    def __init__(self, tie_seed: int | None, simpy_internals: bool | None) -> None:
        super().__init__()
        internals = internals_present() if simpy_internals is None else simpy_internals
        if tie_seed is not None and not internals:
            raise ValueError("tie_seed needs simpy's internals: install simpy>=4.1.1,<4.2")
        self._direct_env = DirectEnvironment(tie_seed) if internals else None
        self._env: VirtualEnvironment = self._direct_env or VirtualEnvironment()
        self._direct = False
        self._direct_allowed = True
        self._cancelled_timers = 0

    @property
    def env(self) -> VirtualEnvironment:
        """The simpy environment under this loop; its resources and processes run on the same clock."""
        return self._env

    @property
    def now_ns(self) -> int:
        """Virtual time, ns."""
        return self._env._now  # type: ignore[return-value]

    def time(self) -> float:
        """Return virtual time in seconds; `now_ns` is exact, this to the nanosecond for 26 days only."""
        return self._env._now / NS

    def post(self, when: int, callback: Callable[[T], object], arg: T) -> None:
        """Call `callback(arg)` at `when` (ns, an int): no handle, no context, no way to cancel.

        `ValueError` when that is past. What the callback raises ends the run.
        """
        env = self._direct_env
        if env is None:
            self._schedule(when, NORMAL, partial(self._directly, partial(callback, arg)))
            return
        if when < env._now:
            raise ValueError(f"cannot schedule at {when} ns: it is {env._now} ns already")
        heappush(env._queue, (when, 1, env.next_id(), callback, arg))  # type: ignore[misc]

    def call_at_ns(
        self, when: int, callback: Callable[[*Ts], object], *args: *Ts, priority: int = NORMAL
    ) -> Timer:
        """Call `callback(*args)` at `when` (ns) and return its handle; `ValueError` when that is past.

        At one time, lower priorities come first: simpy's urgent events have 0, all others 1.
        """
        self._check_closed()
        when = index(when)
        timer = Timer(when, callback, args, self)
        self._push(when, priority, timer)
        timer._scheduled = True
        return timer

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Call `callback(*args)` at `when` seconds, rounded to the nanosecond; at once when that is past."""
        self._check_closed()
        if isinf(when) and when > 0:
            return Timer(None, callback, args, self, context)
        due = max(round(when * NS), self.now_ns)
        timer = Timer(due, callback, args, self, context)
        self._push(due, NORMAL, timer)
        timer._scheduled = True
        return timer

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Timer:
        """Call `callback(*args)` in `delay` seconds, rounded to the nanosecond."""
        if isinf(delay):
            return self.call_at(delay, callback, *args, context=context)
        # From integers, so that the delay is exact however late it is.
        timer = Timer(self.now_ns + max(round(delay * NS), 0), callback, args, self, context)
        self._check_closed()
        self._push(timer.when_ns, NORMAL, timer)  # type: ignore[arg-type]
        timer._scheduled = True
        return timer

    def sleep_until(self, when: int) -> Wake:
        """Return an awaitable that is done at `when` (ns); `ValueError` when that is past."""
        wake = Wake(self, "the clock")
        env = self._direct_env
        if env is None or when < env._now:
            self._push(when, NORMAL, wake)
        else:
            heappush(env._queue, (when, 1, env.next_id(), wake))  # type: ignore[misc]
        return wake

    def wait_event(self, event: Event) -> Coroutine[Any, Any, Any]:
        """Return a coroutine that waits for a simpy event: see `bridge.wait_event`."""
        return wait_event(self, event)

    def _push(self, when: int, priority: int, item: Timer | Wake) -> None:
        env = self._direct_env
        if env is None:
            fire = partial(_fire, item)
            self._schedule(when, priority, partial(self._directly, fire) if type(item) is Wake else fire)
        elif when < env._now:
            raise ValueError(f"cannot schedule at {when} ns: it is {env._now} ns already")
        else:
            env.push(when, priority, item)

    def _schedule(self, when: int, priority: int, callback: Callable[[], object]) -> None:
        """Schedule through simpy's public API."""
        now = self.now_ns
        if when < now:
            raise ValueError(f"cannot schedule at {when} ns: it is {now} ns already")
        self._env.schedule(Due(self._env, callback), EventPriority(priority), when - now)

    def _directly(self, callback: Callable[[], object]) -> None:
        self._direct = self._direct_allowed
        try:
            callback()
        finally:
            self._direct = False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Drop cancelled timers from the queue once they are the larger part of it."""
        env = self._direct_env
        if env is None or not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._cancelled_timers += 1
        queue = env._queue
        if self._cancelled_timers > _COMPACT_ABOVE and 2 * self._cancelled_timers > len(queue):
            kept = [entry for entry in queue if not _is_cancelled_timer(entry[3], handle)]
            queue[:] = kept
            heapify(queue)
            self._cancelled_timers = 0

    def _dispatch(self, env: DirectEnvironment, when: int, item: Any) -> None:
        """Serve a timer, a sleep or a simpy event; cancelled ones do not even move the clock."""
        kind = type(item)
        if kind is Wake:
            if not item.done():
                env._now = when
                item.set()
        elif kind is Timer and item._cancelled:
            self._cancelled_timers -= 1
        else:
            env._now = when
            # No direct wakes in here: a task resumed inside a simpy process would be taken for that
            # process, and one inside a timer could meet its own context entered.
            self._direct = False
            if kind is Timer:
                item._scheduled = False
                item._run()
            else:
                _process(item)
            self._direct = self._direct_allowed


def _process(event: Any) -> None:
    """Do what `simpy.Environment.step` does with an event."""
    callbacks, event.callbacks = event.callbacks, None
    for callback in callbacks:
        callback(event)
    if not event._ok and not event.defused:
        raise event._value


def _is_cancelled_timer(item: Any, just_now: asyncio.TimerHandle) -> bool:
    return type(item) is Timer and (item is just_now or item.cancelled())


def _fire(item: Timer | Wake) -> None:
    """Serve a timer or a sleep on the path over simpy's public API."""
    if not isinstance(item, Wake):
        if not item.cancelled():
            item._run()
    elif not item.done():
        item.set()
