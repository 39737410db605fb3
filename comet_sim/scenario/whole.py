"""Files that are written whole or not at all, and steps that a signal does not cut in two."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from comet_sim.errors import InputError

__all__ = ["shielded", "write_whole"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def write_whole(path: Path, text: str, *, new: bool = False) -> None:
    """Write `text` to `path` as UTF-8: under another name first, so that a failure leaves what was there.

    With `new`, raises `InputError` where something is there already. What is no regular file (a pipe,
    /dev/stdout) is written to directly.
    """
    taken = InputError(f"{path} is there already; choose another name")
    if new and os.path.lexists(path):
        raise taken
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve() if path.is_symlink() else path
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        if new and _linked(partial, target):
            return
        partial.replace(target)
    except FileExistsError:
        raise taken from None
    finally:
        partial.unlink(missing_ok=True)


def _linked(partial: Path, target: Path) -> bool:
    """Give a file its name unless somebody else has taken it meanwhile; False where there are no hard links."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


@contextmanager
def shielded() -> Iterator[None]:
    """Hold back interrupts until the body is done, which must be short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        caught.append(signum)

    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    held = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in held:
        signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        if caught:
            signal.raise_signal(caught[0])
