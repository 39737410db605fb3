"""Progress of a run on stderr: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from comet_sim.cli.pipes import reader_may_leave
from comet_sim.cli.safe import one_line
from comet_sim.units import format_duration

__all__ = ["Report", "reporting"]


class Report(Protocol):
    """What a run reports its progress to."""

    def __call__(self, stage: str, done: int, total: int, virtual_ns: int) -> None:
        """Take the stage, how many of its steps are done, and the virtual clock."""


_EVERY_S = 5.0


@contextmanager
def reporting(label: str, *, quiet: bool) -> Iterator[Report | None]:
    """Give what a run of system `label` reports to, or None when nothing is to be shown."""
    label = one_line(label)
    if quiet:
        yield None
        return
    from comet_sim.cli.output import console

    screen = console(stderr=True)
    if not screen.is_terminal:
        yield _lines(label)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=32),
        MofNCompleteColumn(),
        TextColumn("virtual {task.fields[virtual]}"),
        TimeElapsedColumn(),
    )
    with Progress(TextColumn(f"{label} ", markup=False), *columns, console=screen, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int, virtual_ns: int) -> None:
            virtual = format_duration(virtual_ns)
            if stage not in tasks:
                tasks[stage] = shown.add_task(stage, total=total, virtual=virtual)
            shown.update(tasks[stage], completed=done, total=total, virtual=virtual)

        yield report


def _lines(label: str) -> Report:
    """Return a report that writes a line as a stage begins and ends, and every few seconds between."""
    last = 0.0
    told: tuple[str, int] | None = None

    def report(stage: str, done: int, total: int, virtual_ns: int) -> None:
        nonlocal last, told
        now = time.monotonic()
        if told == (stage, done) or (0 < done < total and now - last < _EVERY_S):
            return
        last, told = now, (stage, done)
        line = f"{label}: {stage} {done}/{total}, virtual time {format_duration(virtual_ns)}"
        with reader_may_leave(sys.stderr):  # a run does not end because nobody watches it
            print(line, file=sys.stderr)

    return report
