"""Makes simpy's events awaitable, for the cooler paths: resources, stores, containers, processes."""

from __future__ import annotations

from asyncio import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any

from simpy.events import Event
from simpy.resources.base import Get, Put
from simpy.resources.container import ContainerGet
from simpy.resources.resource import Request
from simpy.resources.store import StoreGet

from comet_sim.kernel.wake import Wake

if TYPE_CHECKING:
    from comet_sim.kernel.clock import Clock

__all__ = ["wait_event"]


async def wait_event(loop: Clock, event: Event) -> Any:
    """Wait for `event` and return its value, or raise the exception it failed with.

    Cancelling withdraws what was asked of a resource, even where simpy has granted it already: a request
    is released, a thing taken is put back. `ValueError` when the event belongs to another environment.
    """
    if event.env is not loop.env:
        raise ValueError(f"{event!r} belongs to another environment than the loop's")
    if event.callbacks is not None:
        wake = Wake(loop, event)
        settle = partial(_settle, wake)
        event.callbacks.append(settle)
        try:
            await wake
        except CancelledError:
            if event.callbacks is not None:
                event.callbacks.remove(settle)
            _withdraw(event)
            raise
    if event.ok:
        return event.value
    raise event.value  # type: ignore[misc]


def _settle(wake: Wake, event: Event) -> None:
    if not event.ok:
        event.defused = True
    if not wake.done():
        wake.set()


def _withdraw(event: Event) -> None:
    """Undo the request behind `event` as far as simpy's public API can."""
    if not event.triggered:
        if isinstance(event, (Get, Put)):
            event.cancel()
            # In a `with` block simpy cancels once more, which it cannot do twice.
            event.cancel = _already_withdrawn  # type: ignore[method-assign]
    elif isinstance(event, Request):
        event.resource.release(event)
    elif isinstance(event, ContainerGet):
        event.resource.put(event.amount)
    elif isinstance(event, StoreGet) and event.ok:
        event.resource.put(event.value)


def _already_withdrawn() -> None:
    """Do nothing."""
