"""The asyncio loop whose clock is a simpy queue in integer nanoseconds."""

from __future__ import annotations

import asyncio
import sys
import threading
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from heapq import heappop
from itertools import count
from typing import Any, TypeVar, TypeVarTuple

from comet_sim.kernel.clock import Clock
from comet_sim.kernel.deadlock import DeadlockError, describe_tasks
from comet_sim.kernel.environment import DirectEnvironment
from comet_sim.kernel.errors import RealIOError
from comet_sim.kernel.futures import NumberedFuture, NumberedTask
from comet_sim.kernel.refused import NoRealIO
from comet_sim.kernel.wake import Wake

__all__ = ["VirtualLoop", "now_ns", "sleep_ns"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualLoop(Clock, NoRealIO):
    """Asyncio loop on a discrete-event clock: time jumps to the next event once nothing is ready.

    Ready callbacks run first in, first out; then the earliest entry of the queue does, by (time,
    priority, order of scheduling). `tie_seed` replaces the last by a seeded order, to expose races.
    With `simpy_internals` False, or where simpy's queue is not found, the loop drives simpy through its
    public API: the same run, slower, and without `tie_seed` (`ValueError`).
    An exception from a `post` callback or a simpy event ends the run and leaves `run_until_complete`,
    one from a handle goes to the exception handler, as asyncio has it.
    """

    def __init__(self, *, tie_seed: int | None = None, simpy_internals: bool | None = None) -> None:
        super().__init__(tie_seed, simpy_internals)
        self._ready: deque[asyncio.Handle] = deque()
        self._stopping = self._stop_was_asked = self._running = False
        self._task_numbers, self._future_numbers = count(1), count(1)
        self._task_factory: Any = None

    def __repr__(self) -> str:
        return f"<VirtualLoop at {self.now_ns} ns running={self._running} closed={self._closed}>"

    # Callbacks and tasks

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call `callback(*args)` at the present time, after all that is ready already."""
        if self._closed:
            self._check_closed()
        if self._debug and not self._in_own_thread():
            raise RealIOError("loop.call_soon: other threads cannot be used on a virtual clock")
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future that is hashed by its creation number."""
        return NumberedFuture(next(self._future_numbers), loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Return a task for `coro`, hashed by its creation number, that starts once it is its turn."""
        self._check_closed()
        if self._task_factory is None:
            label = None if name is None else str(name)
            number = next(self._task_numbers)
            return NumberedTask(coro, number, loop=self, name=label, context=context)  # type: ignore[arg-type]
        options = {} if context is None else {"context": context}
        task: asyncio.Task[Any] = self._task_factory(self, coro, **options)
        if name is not None:
            task.set_name(name)
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Make tasks with `factory(loop, coro, context=...)`; None restores the numbered tasks."""
        self._task_factory = factory
        # An eager factory starts tasks inside heap callbacks, where direct wakes would nest tasks.
        self._direct_allowed = factory is None
        self._direct = False

    def get_task_factory(self) -> Any:
        """Return the task factory, None for the numbered tasks."""
        return self._task_factory

    # Running

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing can happen: `DeadlockError` when tasks are pending then."""
        self._check_closed()
        if self._running:
            raise RuntimeError("This event loop is already running")
        with self._current():
            if self._direct_env is None:
                self._run_public()
            else:
                self._run_direct(self._direct_env)
            if not self._stopping and (pending := self._pending()):
                raise DeadlockError(self.now_ns, describe_tasks(pending))

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Run until `future` is done and return its result; `DeadlockError` when it never can be.

        Works while another asyncio loop runs in this thread, as in a notebook.
        """
        self._check_closed()
        is_new = not asyncio.isfuture(future)
        main: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        main.add_done_callback(self._stop_after)
        try:
            self.run_forever()
        except BaseException:
            if is_new and main.done() and not main.cancelled():
                main.exception()
            raise
        finally:
            main.remove_done_callback(self._stop_after)
        if not main.done():
            if self._stop_was_asked:
                raise RuntimeError("Event loop stopped before Future completed.")
            raise DeadlockError(self.now_ns, ())
        return main.result()

    def _run_direct(self, env: DirectEnvironment) -> None:
        """Run on simpy's queue itself; a heap entry is dispatched when nothing is ready."""
        ready, queue, pop = self._ready, env._queue, heappop
        self._drain()
        self._direct = self._direct_allowed
        while not self._stopping:
            if ready:
                self._drain()
                self._direct = self._direct_allowed
            elif queue:
                entry: Any = pop(queue)
                if len(entry) == 5:
                    env._now = entry[0]
                    entry[3](entry[4])
                else:
                    self._dispatch(env, entry[0], entry[3])
            else:
                break

    def _run_public(self) -> None:
        """Run on simpy's public API; `Due` events allow direct wakes while they call."""
        env, ready = self._env, self._ready
        self._drain()
        while not self._stopping:
            if ready:
                self._drain()
            elif env.peek() != float("inf"):
                env.advance()
            else:
                break

    def _drain(self) -> None:
        """Run what is ready now; what that makes ready waits for the next drain, as asyncio has it."""
        self._direct = False
        ready = self._ready
        popleft = ready.popleft
        for _ in range(len(ready)):
            handle = popleft()
            if not handle._cancelled:
                handle._run()

    @contextmanager
    def _current(self) -> Iterator[None]:
        """Make this the running loop of the thread, and give the thread back as it was."""
        outer = events._get_running_loop()
        outer_task = None if outer is None else asyncio.current_task(outer)
        hooks = sys.get_asyncgen_hooks()
        depth = sys.get_coroutine_origin_tracking_depth()
        if outer is not None and outer_task is not None:
            # From Python 3.14 on a thread, not a loop, has one current task.
            asyncio.tasks._leave_task(outer, outer_task)
        self._thread_id = threading.get_ident()
        self._running, self._stop_was_asked = True, False
        try:
            if self._debug:
                sys.set_coroutine_origin_tracking_depth(10)
            sys.set_asyncgen_hooks(firstiter=self._asyncgen_started, finalizer=self._asyncgen_dropped)
            events._set_running_loop(self)
            yield
        finally:
            self._stop_was_asked = self._stopping
            self._stopping = self._running = self._direct = False
            events._set_running_loop(outer)
            sys.set_asyncgen_hooks(*hooks)
            sys.set_coroutine_origin_tracking_depth(depth)
            if outer is not None and outer_task is not None:
                asyncio.tasks._enter_task(outer, outer_task)

    def _stop_after(self, main: asyncio.Future[Any]) -> None:
        # A main task that ends with one of these has it on the way out of the loop already.
        if main.cancelled() or not isinstance(main.exception(), (SystemExit, KeyboardInterrupt)):
            self._stopping = True

    def stop(self) -> None:
        """Return from `run_forever` once the callbacks that are ready have run."""
        self._stopping = True

    def is_running(self) -> bool:
        """Return whether the loop runs now."""
        return self._running

    def close(self) -> None:
        """Cancel what is pending, let it clean up, and refuse all further work."""
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        if self._closed:
            return
        try:
            self._cancel_pending()
            if self._asyncgens:
                self.run_until_complete(self.shutdown_asyncgens())
        finally:
            self._closed = True
            self._ready.clear()
            if self._direct_env is not None:
                self._direct_env._queue.clear()

    def _cancel_pending(self) -> None:
        pending = self._pending()
        if not pending:
            return
        for task in pending:
            task.cancel()
        try:
            results = self.run_until_complete(_settled(pending))
        except DeadlockError:
            # They wait in their clean-up for what cannot come: nothing is left to say about them.
            for task in self._pending():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
            return
        for task, result in zip(pending, results, strict=True):
            if isinstance(result, Exception):
                message = "unhandled exception while the loop was closed"
                self.call_exception_handler({"message": message, "exception": result, "task": task})

    def _pending(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, in the order of their creation."""
        return sorted(asyncio.all_tasks(self), key=lambda task: getattr(task, "number", 0))


async def _settled(tasks: list[asyncio.Task[Any]]) -> list[Any]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def now_ns() -> int:
    """Return the virtual time of the running loop, ns; `RuntimeError` when that is not a `VirtualLoop`."""
    return _running().now_ns


def sleep_ns(delay: int) -> Wake:
    """Return an awaitable that is done in `delay` ns of the running loop; `ValueError` when negative."""
    loop = _running()
    return loop.sleep_until(loop._env._now + delay)  # type: ignore[arg-type]


def _running() -> VirtualLoop:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError(f"this needs a VirtualLoop, but {type(loop).__name__} is running")
    return loop
