"""One call from a coroutine to its result on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from comet_sim.kernel.loop import VirtualLoop

__all__ = ["run"]

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, loop_factory: Callable[[], VirtualLoop] = VirtualLoop) -> T:
    """Run `main` on a new virtual loop, close that, and return the result.

    It may be called where another loop runs in this thread (a notebook); elsewhere it is
    `asyncio.Runner`, so that the first Ctrl-C cancels `main` and lets it clean up.
    """
    if asyncio._get_running_loop() is None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(main)
    loop = loop_factory()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
