"""Output streams whose reader has gone (`| head`): the rest of the output goes nowhere, quietly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

__all__ = ["hush", "reader_may_leave"]


def hush(stream: IO[str]) -> None:
    """Send what is still written to `stream` nowhere."""
    with suppress(OSError, ValueError):  # a stream without a file has no reader either
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def reader_may_leave(stream: IO[str]) -> Iterator[None]:
    """Stop writing to `stream` where its reader closes it; the command goes on, and so does its exit code."""
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        hush(stream)
