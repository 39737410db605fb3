"""Mahimahi's trace files: a recorded line as the moments at which it could send."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from comet_sim.errors import InputError

__all__ = ["anchor_traces", "read_trace"]

_MOST_BYTES = 16 * 2**20
_MOST_LINES = 2**20
_MOST_MS = 10**12  # 31 years
_NO_NUMBER = re.compile(rb"[^0-9\s]|[0-9]{14}")


def read_trace(path: Path) -> tuple[int, ...]:
    """Return the opportunities of a mahimahi trace, ms in rising order: at each of them 1500 bytes may leave.

    The file has a whole number a line, at most 2^20 lines and 16 MiB. Raises `InputError`, naming file and
    line, on anything else. Source: mahimahi's mm-link, packet-delivery traces.
    """
    try:
        state = path.stat()
        if not path.is_file():
            raise InputError(f"trace {path} is not a file")
        if state.st_size > _MOST_BYTES:
            raise InputError(f"trace {path} has {state.st_size:,} bytes; accepted: up to {_MOST_BYTES:,}")
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise InputError(f"trace {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a null byte in the path
        raise InputError(f"trace {str(path)!r} is no path: {error}") from None


@lru_cache(maxsize=4)
def _read(path: Path, changed: int, size: int) -> tuple[int, ...]:
    """Read a file; the links that share it, and later runs while it stays as it is, share the numbers."""
    import numpy as np

    data = path.read_bytes()
    wrong = _NO_NUMBER.search(data)
    if wrong:
        line = data.count(b"\n", 0, wrong.start()) + 1
        read = data.splitlines()[line - 1][:40].decode("utf-8", "replace")
        raise InputError(f"trace {path}:{line}: read {read!r}; accepted: a whole number of ms a line")
    words = data.split()
    if not 1 <= len(words) <= _MOST_LINES:
        raise InputError(f"trace {path} has {len(words):,} lines; accepted: 1 to {_MOST_LINES:,}")
    times = np.array(words).astype(np.int64)
    back = np.flatnonzero(np.diff(times) < 0)
    if len(back):
        at = int(back[0])
        raise InputError(f"trace {path}: {times[at + 1]} ms comes after {times[at]} ms; times must not fall")
    if not 1 <= times[-1] <= _MOST_MS:
        raise InputError(f"trace {path} ends at {times[-1]} ms; accepted: 1 to {_MOST_MS:,}")
    found: tuple[int, ...] = tuple(times.tolist())
    return found


def anchor_traces(table: dict[str, Any], base: Path) -> dict[str, Any]:
    """Return a network's table with the paths of all its traces, relative to `base`, made absolute."""
    return {key: _anchored(key, value, base) for key, value in table.items()}


def _anchored(key: str, value: Any, base: Path) -> Any:
    if isinstance(value, dict):
        return anchor_traces(value, base)
    return str((base / value).absolute()) if key == "trace" and isinstance(value, str) else value
