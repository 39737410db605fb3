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
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(_cancelled_by_signals(main))
    loop = loop_factory()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


async def _cancelled_by_signals(main: Coroutine[Any, Any, T]) -> T:
    """Do for other signals what `asyncio.Runner` does for SIGINT.

    An exception raised by a handler may fall anywhere, also between taking a callback and running it: then a party is
    lost, and the clean-up ends in a deadlock.
    """
    task = asyncio.current_task()
    assert task is not None, "coroutines run in tasks"
    stopped = False

    def stop(signum: int, frame: FrameType | None) -> None:
        nonlocal stopped
        if stopped:
            raise KeyboardInterrupt
        stopped = True
        task.cancel()

    with _taking_over(stop):
        try:
            return await main
        except asyncio.CancelledError:
            if stopped:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def _taking_over(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle the signals that raise KeyboardInterrupt, but for SIGINT where `asyncio.Runner` has it."""
    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        taken = [s for s in signal.valid_signals() if signal.getsignal(s) is signal.default_int_handler]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.default_int_handler)
