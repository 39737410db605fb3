"""`comet-sim trace RUN --diff OTHER`: what one run costs more or less than another, op by op."""

from __future__ import annotations

from pathlib import Path

from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.cli.trace_analysis import cut
from comet_sim.trace import Filter, Trace
from comet_sim.trace.difference import COSTS, OpDifference, difference
from comet_sim.units import format_duration, format_size

__all__ = ["show_difference"]

_JSON_SCHEMA = 1
_DEPTH = 4


def show_difference(
    left: Path, right: Path, filters: Filter, depth: int | None, limit: int, *, as_json: bool
) -> None:
    """Print the ops in which two runs differ, this one minus the other; equal traces say so."""
    ours, theirs = Trace.load(left), Trace.load(right)
    rows = difference(ours, theirs, depth or _DEPTH, filters)
    different = [row for row in rows if not row.equal]
    if as_json:
        print_json(
            {
                "schema": _JSON_SCHEMA,
                "trace": str(left),
                "other": str(right),
                "equal": ours.digest == theirs.digest,
                "operations": [_document(row) for row in rows],
            }
        )
        return
    out = console()
    if ours.digest == theirs.digest:
        out.print(plain(f"the traces are equal, record by record: digest {ours.digest}"))
        return
    kept, more = cut(different, limit)
    columns = ("phase", "operation", "in", "critical", "rounds", "messages", "payload", "compute")
    title = f"{_name(left)} minus {_name(right)} (critical: time on the critical path{more})"
    shown = table(title, *columns, right=columns[3:])
    for row in kept:
        times = [_signed(row.of(cost), format_duration) for cost in ("critical", "compute")]
        counts = [f"{row.of(cost):+,}" if row.of(cost) else "" for cost in ("rounds", "messages")]
        sizes = _signed(row.of("payload"), format_size)
        shown.add_row(row.phase, plain(row.op), _where(row), times[0], *counts, sizes, times[1])
    show(out, shown)
    same = len(rows) - len(different)
    out.print(plain(f"{len(different):,} operations differ, {same:,} cost the same in both"))
    totals = {cost: sum(row.of(cost) for row in rows) for cost in COSTS}
    out.print(
        plain(
            f"in all: {_signed(totals['payload'], format_size) or 'no'} payload, {totals['messages']:+,} messages; "
            f"digests {ours.digest} and {theirs.digest}"
        )
    )


def _where(row: OpDifference) -> str:
    return "both" if row.left and row.right else "this only" if row.left else "other only"


def _signed(number: int, written: object) -> str:
    if not number:
        return ""
    assert callable(written)
    return f"{'+' if number > 0 else '-'}{written(abs(number))}"


def _name(folder: Path) -> str:
    return f"{folder.parent.parent.name}/{folder.parent.name}"


def _document(row: OpDifference) -> dict[str, object]:
    sides = {"this": row.left, "other": row.right}
    return {
        "phase": row.phase,
        "op": row.op,
        **{
            name: None if side is None else {cost: getattr(side, cost) for cost in COSTS}
            for name, side in sides.items()
        },
        "difference": {cost: row.of(cost) for cost in COSTS},
    }
