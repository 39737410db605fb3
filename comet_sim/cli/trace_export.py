"""`comet-sim trace RUN --export FORMAT`: a trace, or part of it, for other programs."""

from __future__ import annotations

import sys
from pathlib import Path

from comet_sim.errors import InputError
from comet_sim.export import FORMATS, export
from comet_sim.network.explain import suggestion
from comet_sim.trace import Filter, Trace
from comet_sim.trace.hints import why_nothing
from comet_sim.units import format_size

__all__ = ["write_export"]


def write_export(
    folder: Path, filters: Filter, format: str | None, out: Path | None, *, verify: bool
) -> None:
    """Write what the filter keeps of a trace; the file takes the run's name where none is given."""
    if format is None:
        raise InputError(f"--out: nothing to write; choose --export {', '.join(FORMATS)}")
    if format not in FORMATS:
        raise InputError(f"--export {format}: no such format; {suggestion(format, list(FORMATS))}")
    trace = Trace.load(folder)
    if verify:
        trace.verify()
    part = trace.select(filters)
    if not any(
        part.read("messages", ("id",), [block]).num_rows for block in range(part.block_count("messages"))
    ):
        raise InputError(why_nothing(trace, filters))
    file = out or Path(f"{folder.parent.parent.name}-{folder.parent.name}{FORMATS[format][0]}")
    print(f"writing {file}", file=sys.stderr)
    export(part, format, file)  # type: ignore[arg-type]
    print(f"{file}: {format_size(file.stat().st_size)}")
