"""The formats a trace can be written in, by name; a file appears under its name only when it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Literal

import pyarrow.parquet as pq

from comet_sim.errors import InputError
from comet_sim.export.chrome import write_chrome
from comet_sim.export.pcapng import write_pcapng
from comet_sim.export.perfetto import write_perfetto
from comet_sim.trace import Trace, round_table

__all__ = ["FORMATS", "Format", "export"]

Format = Literal["perfetto", "chrome", "pcapng", "parquet"]


def _write_rounds(trace: Trace, file: IO[bytes]) -> None:
    """Write the round table: what the four tables of a run folder, Parquet already, do not hold."""
    pq.write_table(round_table(trace), file)


FORMATS: dict[str, tuple[str, Callable[[Trace, IO[bytes]], None]]] = {
    "perfetto": (".perfetto-trace", write_perfetto),
    "chrome": (".json", write_chrome),
    "pcapng": (".pcapng", write_pcapng),
    "parquet": (".parquet", _write_rounds),
}
"""By name: the usual suffix, and what writes it."""


def export(trace: Trace, format: Format, file: Path) -> None:
    """Write a trace, or the part of one that a filter keeps, to `file`.

    Raises InputError where the file cannot be made or the format's library is missing; then nothing is left behind.
    """
    if file.is_dir():
        raise InputError(f"{file}: is a folder, expected a file")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            FORMATS[format][1](trace, stream)
        partial.replace(file)
    except FileNotFoundError:
        raise InputError(f"{file}: no such folder as {file.parent}") from None
    finally:
        partial.unlink(missing_ok=True)
