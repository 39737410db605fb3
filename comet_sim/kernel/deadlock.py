"""Says who waits for what when nothing can happen any more."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from comet_sim.errors import CometSimError
from comet_sim.kernel.wake import Wake

__all__ = ["DeadlockError", "WaitingTask", "describe_tasks"]

_SHOWN = 32
_CHAINS = (
    ("cr_await", "cr_frame", "cr_code"),
    ("ag_await", "ag_frame", "ag_code"),
    ("gi_yieldfrom", "gi_frame", "gi_code"),
)


class WaitingTask(NamedTuple):
    """A pending task: its name, its awaits from the outermost in, and what the innermost waits for."""

    name: str
    chain: tuple[str, ...]
    waiting_for: str


class DeadlockError(CometSimError):
    """No callback is ready and no event is due, but the awaited result is not there.

    `time_ns` is the virtual time, `tasks` are all pending tasks in the order of their creation.
    """

    exit_code = 3

    def __init__(self, time_ns: int, tasks: Sequence[WaitingTask]) -> None:
        self.time_ns = time_ns
        self.tasks = tuple(tasks)
        lines = [f"deadlock at {time_ns} ns of virtual time: {len(tasks)} pending, nothing left to happen"]
        for task in self.tasks[:_SHOWN]:
            lines.append(f"  {task.name} waits for {task.waiting_for}")
            lines.extend(f"    at {step}" for step in task.chain)
        if len(tasks) > _SHOWN:
            lines.append(f"  and {len(tasks) - _SHOWN} more")
        super().__init__("\n".join(lines))


def describe_tasks(tasks: Sequence[asyncio.Task[Any]]) -> list[WaitingTask]:
    """Return what each of `tasks` waits for and where; none of them may be running."""
    return [
        WaitingTask(
            task.get_name(), tuple(_chain(task.get_coro())), _subject(getattr(task, "_fut_waiter", None))
        )
        for task in tasks
    ]


def _chain(awaited: Any) -> Iterator[str]:
    """Yield `qualname (file:line)` of every coroutine, generator and async generator from `awaited` in."""
    while awaited is not None:
        for inner, frame, code in _CHAINS:
            if hasattr(awaited, inner):
                if not _is_wake_iterator(awaited):
                    where = getattr(awaited, frame)
                    path = PurePath(getattr(awaited, code).co_filename)
                    line = where.f_lineno if where else 0
                    yield f"{awaited.__qualname__} ({'/'.join(path.parts[-2:])}:{line})"
                awaited = getattr(awaited, inner)
                break
        else:
            awaited = _wrapped(awaited)


def _is_wake_iterator(awaited: Any) -> bool:
    return getattr(awaited, "gi_code", None) is Wake.__await__.__code__


def _wrapped(awaited: Any) -> Any:
    """Return what an opaque awaitable of the interpreter wraps: `async for` hides its generator."""
    if type(awaited).__name__ in {"async_generator_asend", "async_generator_athrow", "coroutine_wrapper"}:
        for inner in gc.get_referents(awaited):
            if any(hasattr(inner, name) for name, _, _ in _CHAINS):
                return inner
    return None


def _subject(waiter: Any) -> str:
    if waiter is None:
        return "its turn"
    if isinstance(waiter, Wake):
        return "a wake" if waiter.waiting_for is None else str(waiter.waiting_for)
    if isinstance(waiter, asyncio.Task):
        return f"task {waiter.get_name()}"
    return f"a {type(waiter).__name__.removeprefix('Numbered')}"
