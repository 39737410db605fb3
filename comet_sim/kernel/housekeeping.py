"""The parts of an asyncio loop that have no clock: failures, async generators, flags, its thread."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from typing import Any

__all__ = ["Housekeeping"]

_Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
_logger = logging.getLogger("asyncio")


class Housekeeping(asyncio.AbstractEventLoop):
    """Loop that reports failures, closes async generators in order, and knows its thread and its flags."""

    def __init__(self) -> None:
        self._exception_handler: _Handler | None = None
        self._asyncgens: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}
        self._closed = False
        self._debug = sys.flags.dev_mode
        self._thread_id = threading.get_ident()

    def is_closed(self) -> bool:
        """Return whether the loop was closed."""
        return self._closed

    def _check_closed(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    def _in_own_thread(self) -> bool:
        return threading.get_ident() == self._thread_id

    def get_debug(self) -> bool:
        """Return the debug flag."""
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        """Set the debug flag: coroutine origins, where handles were made, and a thread check."""
        self._debug = enabled

    def set_exception_handler(self, handler: _Handler | None) -> None:
        """Report to `handler(loop, context)`; None restores the log."""
        if handler is not None and not callable(handler):
            raise TypeError(f"A callable object or None is expected, got {handler!r}")
        self._exception_handler = handler

    def get_exception_handler(self) -> _Handler | None:
        """Return the handler, None for the log."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log the message, every other item of `context`, and the exception's traceback."""
        exception = context.get("exception")
        details = [
            f"{key}: {context[key]!r}" for key in sorted(context) if key not in {"message", "exception"}
        ]
        text = "\n".join([context.get("message") or "Unhandled exception in event loop", *details])
        _logger.error(text, exc_info=exception or False)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report `context`; a handler that fails is itself reported to the log."""
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except Exception as error:
            self.default_exception_handler(
                {"message": "Unhandled error in exception handler", "exception": error, "context": context}
            )

    def _asyncgen_started(self, agen: AsyncGenerator[Any, Any]) -> None:
        # By address only to find it again: a dict iterates in the order of insertion.
        key = id(agen)
        self._asyncgens[key] = weakref.ref(agen, lambda _: self._asyncgens.pop(key, None))

    def _asyncgen_dropped(self, agen: AsyncGenerator[Any, Any]) -> None:
        self._asyncgens.pop(id(agen), None)
        if not self._closed:
            self.call_soon(self.create_task, agen.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Close all async generators that were started and not finished, in the order they started."""
        open_ones = [agen for ref in self._asyncgens.values() if (agen := ref()) is not None]
        self._asyncgens.clear()
        results = await asyncio.gather(*[agen.aclose() for agen in open_ones], return_exceptions=True)
        for agen, result in zip(open_ones, results, strict=True):
            if isinstance(result, Exception):
                self.call_exception_handler(
                    {
                        "message": f"closing async generator {agen!r} failed",
                        "exception": result,
                        "asyncgen": agen,
                    }
                )
