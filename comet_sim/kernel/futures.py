"""Tasks and futures whose hash is their creation number, so that sets of them iterate alike in every run.

`asyncio.TaskGroup` aborts, and `asyncio.wait` reports, in the order of a set: with the usual hash, the
address, that order differs from run to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any

__all__ = ["NumberedFuture", "NumberedTask"]


class NumberedTask(asyncio.Task[Any]):
    """Task known by its creation number in its loop; the default name carries the number too."""

    # asyncio files the task in a set while it is being constructed, so the number comes first.
    def __init__(
        self,
        coro: Coroutine[Any, Any, Any],
        number: int,
        *,
        loop: asyncio.AbstractEventLoop,
        name: str | None = None,
        context: Context | None = None,
    ) -> None:
        self.number = number
        super().__init__(coro, loop=loop, name=name or f"Task-{number}", context=context)

    def __hash__(self) -> int:
        return self.number


class NumberedFuture(asyncio.Future[Any]):
    """Future known by its creation number in its loop."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number
