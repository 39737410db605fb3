"""Signals that end a command: one line and exit code 130, at any moment, and nothing half written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["INTERRUPTED", "finish", "interruptible", "leave_at_once"]

INTERRUPTED = 130
"""Exit code of a command that was stopped."""

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
_SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))


def leave_at_once() -> None:
    """Let a signal end this process on the spot, while there is nothing to clean up: imports cannot be unwound.

    Signals that whoever started us had ignored (`nohup`, jobs in the background) stay so.
    """
    for number in _listened():
        signal.signal(number, _leave)


def finish() -> None:
    """Ignore signals from now on: the command has ended, and its exit code is decided."""
    for number in _listened():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt in the body, which can clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _listened()}
    for number in before:
        # While a simulation runs, this very handler gives way to one that cancels it (`kernel/run.py`).
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _listened() -> list[signal.Signals]:
    return [number for number in _SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def _leave(signum: int, frame: FrameType | None) -> None:
    try:
        os.write(2, b"error: interrupted\n")
    finally:
        os._exit(INTERRUPTED)
