"""Views of `comet-sim trace` on where the time went: critical path and slack, stalls, top costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

from comet_sim.cli.output import plain, table
from comet_sim.trace import Filter, Trace
from comet_sim.trace.costs import top
from comet_sim.trace.critical import CriticalPath, critical_path
from comet_sim.trace.idle import WAITED_ON, Stalls, stalls
from comet_sim.units import format_duration, format_size

__all__ = ["Analysis", "Shown", "critical_views", "cut", "stall_views", "top_views"]

_DEPTH = 4
_SINGLE = 10
"""Most single stalls shown: they are examples, the totals count them all."""


class Shown(NamedTuple):
    """One view: its name and rows in JSON, and the table on the screen."""

    name: str
    rows: list[dict[str, Any]]
    table: Table


class Analysis:
    """A whole trace, what to show of it, and the critical paths found so far."""

    def __init__(self, trace: Trace, filters: Filter, depth: int | None, limit: int) -> None:
        self.trace = trace
        self.filters = filters
        self.phase = filters.phase or "online"
        self.depth = depth or _DEPTH
        self.limit = limit
        self.whole = filters == Filter(phase=filters.phase)
        """Whether nothing but a phase was chosen."""
        self._paths: dict[str, CriticalPath] = {}

    def path(self, phase: str) -> CriticalPath:
        """Return the critical path of a phase: finding one takes a second for a million events."""
        if phase not in self._paths:
            self._paths[phase] = critical_path(self.trace, phase)
        return self._paths[phase]


def cut(rows: Sequence[Any], limit: int) -> tuple[Sequence[Any], str]:
    """Return the first `limit` rows, and what a title says when there are more."""
    if len(rows) <= limit:
        return rows, ""
    return rows[:limit], f"; the first {limit} of {len(rows):,}, --limit shows more"


def critical_views(on: Analysis) -> list[Shown]:
    """Return where the time on a phase's critical path went, and the slack of all its events, by op."""
    return [_steps(on, on.path(on.phase)), _slack(on, on.path(on.phase))]


def _steps(on: Analysis, path: CriticalPath) -> Shown:
    rows, more = cut(path.by_op(on.depth, on.filters), on.limit)
    parts = [name for name, time in path.parts.items() if time]
    total = format_duration(path.makespan)
    columns = ("operation", "steps", "time", "share", *map(_spaced, parts))
    shown = table(f"Critical path of the {path.phase} phase, {total}{more}", *columns, right=columns[1:])
    for row in rows:
        times = [format_duration(row.parts[name]) for name in parts]
        share = _share(row.total, path.makespan)
        shown.add_row(plain(row.op), f"{row.steps:,}", format_duration(row.total), share, *times)
    document = [{"op": row.op, "steps": row.steps, "time_ns": row.total, "parts": row.parts} for row in rows]
    return Shown("critical_path", document, shown)


def _slack(on: Analysis, path: CriticalPath) -> Shown:
    rows, more = cut(path.slack.by_op(on.depth, on.filters), on.limit)
    columns = ("operation", "events", "none", "least", "median", "most")
    title = f"Slack (how much later an event could have ended without moving the phase's end{more})"
    shown = table(title, *columns, right=columns[1:])
    for row in rows:
        times = [format_duration(time) for time in (row.least, row.median, row.most)]
        shown.add_row(plain(row.op), f"{row.events:,}", f"{row.tight:,}", *times)
    document = [
        {
            "op": row.op,
            "events": row.events,
            "tight": row.tight,
            "least_ns": row.least,
            "median_ns": row.median,
            "most_ns": row.most,
        }
        for row in rows
    ]
    return Shown("slack", document, shown)


def stall_views(on: Analysis) -> list[Shown]:
    """Return how each party spent a phase, who waited for whom by op, and the longest single stalls."""
    found = stalls(on.trace, on.phase)
    parties = [_parties(found)] if on.whole else []  # how a party spent a phase, not an op of it
    return [*parties, _totals(on, found), _longest(on, found)]


def _parties(found: Stalls) -> Shown:
    columns = ("party", "busy", "waiting for a message", "other")
    shown = table(f"Parties in the {found.phase} phase", *columns, right=columns[1:])
    for row in found.parties:
        times = [format_duration(time) for time in (row.busy, row.stalled, row.other)]
        shown.add_row(plain(row.party), *times)
    document = [
        {"party": row.party, "busy_ns": row.busy, "stalled_ns": row.stalled, "other_ns": row.other}
        for row in found.parties
    ]
    return Shown("parties", document, shown)


def _totals(on: Analysis, found: Stalls) -> Shown:
    lines = found.totals(on.depth, on.filters)
    rows, more = cut(lines, on.limit)
    parts = [part for part in WAITED_ON if any(line.parts[part] for line in lines)]
    columns = ("who", "for", "operation", "times", "waited", *map(_spaced, parts))
    shown = table(f"Stalls (who waited for a message of whom{more})", *columns, right=columns[3:])
    for row in rows:
        times = [format_duration(row.parts[part]) for part in parts]
        names = (plain(row.waiter), plain(row.awaited), plain(row.op))
        shown.add_row(*names, f"{row.stalls:,}", format_duration(row.total), *times)
    document = [
        {
            "waiter": row.waiter,
            "awaited": row.awaited,
            "op": row.op,
            "stalls": row.stalls,
            "total_ns": row.total,
            "longest_ns": row.longest,
            "parts": row.parts,
        }
        for row in rows
    ]
    return Shown("stalls", document, shown)


def _longest(on: Analysis, found: Stalls) -> Shown:
    rows: list[dict[str, Any]] = found.longest(min(on.limit, _SINGLE), on.filters).to_pylist()
    columns = ("who", "for", "operation", "from", "waited", "message")
    shown = table("Longest single stalls", *columns, right=columns[3:])
    for row in rows:
        names = [plain(row[name]) for name in ("waiter", "awaited", "path")]
        times = (format_duration(row["begin"]), format_duration(row["duration"]))
        shown.add_row(*names, *times, str(row["message"]))
    return Shown("longest_stalls", rows, shown)


def top_views(on: Analysis) -> list[Shown]:
    """Return what each op cost: time on the critical path, bytes, rounds and compute."""
    rows, more = cut(top(on.trace, on.depth, on.filters, path_of=on.path), on.limit)
    # Only messages have a link, so there is no work to count on one.
    worked = ("compute",) if on.filters.link is None else ()
    columns = ("phase", "operation", "critical", "rounds", "messages", "payload", "on the wire", *worked)
    title = f"Operations (critical: time on the critical path; both directions together{more})"
    shown = table(title, *columns, right=columns[2:])
    for row in rows:
        counts = (f"{row.rounds:,}", f"{row.messages:,}", format_size(row.payload), format_size(row.wire))
        spent = [format_duration(row.compute) for _ in worked]
        shown.add_row(row.phase, plain(row.op), format_duration(row.critical), *counts, *spent)
    document = [
        {
            "phase": row.phase,
            "op": row.op,
            "critical_ns": row.critical,
            "messages": row.messages,
            "payload": row.payload,
            "wire": row.wire,
            "rounds": row.rounds,
            "compute_ns": row.compute,
        }
        for row in rows
    ]
    return [Shown("operations", document, shown)]


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else ""
