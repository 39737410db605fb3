"""One call from a coroutine to its result on virtual time."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from comet_sim.kernel.loop import VirtualLoop

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], VirtualLoop] = VirtualLoop) -> T:
    """Run `main` on a new virtual loop, close that, and return the result.

    It may be called where another loop runs in this thread (a notebook). Elsewhere the first signal that would raise
    KeyboardInterrupt (Ctrl-C, or whatever else has Python's own handler for that) cancels `main` instead, which can
    clean up; then KeyboardInterrupt is raised.
    """
    if asyncio._get_running_loop() is None:
        with asyncio.Runner(loop_factory=loop_factory) as runner, _cancelled_by_signals(runner, main):
            return runner.run(main)
    loop = loop_factory()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


@contextmanager
def _cancelled_by_signals(runner: asyncio.Runner, main: Coroutine[Any, Any, Any]) -> Iterator[None]:
    """Do for other signals what `asyncio.Runner` does for SIGINT.

    An exception raised by a handler may fall anywhere, also between taking a callback and running it: then a party is
    lost, and the clean-up ends in a deadlock.
    """
    stopped = False

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal stopped
        running = [task for task in asyncio.all_tasks(runner.get_loop()) if task.get_coro() is main]
        if stopped or not running:
            raise KeyboardInterrupt
        stopped = True
        running[0].cancel()

    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        # SIGINT is the runner's where it is not ignored.
        others = signal.valid_signals() - {signal.SIGINT}
        taken = [number for number in others if signal.getsignal(number) is signal.default_int_handler]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if stopped:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number in taken:
            signal.signal(number, signal.default_int_handler)
