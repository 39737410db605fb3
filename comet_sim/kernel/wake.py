"""The one-shot awaitable behind mailboxes and sleeps: the heap resumes its task without a detour."""

from __future__ import annotations

from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comet_sim.kernel.clock import Clock

__all__ = ["Wake"]

_PENDING: Any = object()
_CANCELLED: Any = object()


class Wake:
    """One value for one waiting task, delivered at most once.

    When `set` is called from a `post` callback, the waiting task is resumed inside that call; from inside
    a task, a timer, a simpy process or a `call_soon` callback the task is queued as a future's would be.
    `waiting_for` is turned into text only by the deadlock report.

    It follows the protocol of `asyncio.Future` as far as tasks, `wait`, `gather` and `shield` use it, but
    for `get_loop`: where that is missing asyncio reads `_loop`, which saves a call an await. Sets of
    wakes iterate by address: wrap them in tasks for `asyncio.wait`.
    """

    __slots__ = (
        "_asyncio_future_blocking",
        "_callback",
        "_context",
        "_loop",
        "_message",
        "_value",
        "waiting_for",
    )

    _context: Context
    _message: Any

    def __init__(self, loop: Clock, waiting_for: object = None) -> None:
        self._loop = loop
        self.waiting_for = waiting_for
        self._value = _PENDING
        self._callback: Callable[[Any], object] | None = None
        self._asyncio_future_blocking = False

    def set(self, value: Any = None) -> None:
        """Give the value and wake the waiting task; `asyncio.InvalidStateError` when already done."""
        if self._value is not _PENDING:
            raise InvalidStateError(f"{self!r} is already {'cancelled' if self.cancelled() else 'set'}")
        self._value = value
        callback = self._callback
        if callback is not None:
            loop = self._loop
            if loop._direct:
                # The task that runs now may set other wakes: those must wait until it yields.
                loop._direct = False
                try:
                    self._context.run(callback, self)
                finally:
                    loop._direct = loop._direct_allowed
            else:
                loop.call_soon(callback, self, context=self._context)

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it unless it is done, and return whether that worked; the task is never resumed inside."""
        if self._value is not _PENDING:
            return False
        self._value = _CANCELLED
        self._message = msg
        if self._callback is not None:
            # Never direct: cancelling happens in tasks and, on Ctrl-C, in the midst of anything.
            self._loop.call_soon(self._callback, self, context=self._context)
        return True

    def done(self) -> bool:
        """Return whether it was set or cancelled."""
        return self._value is not _PENDING

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        return self._value is _CANCELLED

    def result(self) -> Any:
        """Return the value; `CancelledError` when cancelled, `InvalidStateError` when pending."""
        value = self._value
        if value is _PENDING:
            raise InvalidStateError("Result is not set.")
        if value is _CANCELLED:
            raise CancelledError() if self._message is None else CancelledError(self._message)
        return value

    def exception(self) -> None:
        """Return None, as a wake cannot fail; raises as `result` does when it has no value."""
        self.result()

    def add_done_callback(self, callback: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `callback(self)` once done; a wake takes one callback (`RuntimeError` otherwise)."""
        if self._value is not _PENDING:
            self._loop.call_soon(callback, self, context=context)
            return
        if self._callback is not None:
            raise RuntimeError(f"{self!r} has a waiting task already, and takes one only")
        self._callback = callback
        self._context = copy_context() if context is None else context

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget `callback` and return how many were removed: 0 or 1."""
        if self._callback is None or self._callback != callback:
            return 0
        self._callback = None
        return 1

    def __await__(self) -> Generator[Any, None, Any]:
        if self._value is _PENDING:
            if self._callback is not None:
                raise RuntimeError(f"{self!r} has a waiting task already, and takes one only")
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def __repr__(self) -> str:
        return f"<Wake waiting for {self.waiting_for}>"
