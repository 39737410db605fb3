"""`comet-sim trace`: rounds, costs by operation, links, critical path and digest of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion
from comet_sim.trace import Filter, Trace
from comet_sim.trace.critical import critical_path
from comet_sim.trace.export import round_table
from comet_sim.trace.query import by_link, by_op, dealer_requests, reveal_ledger
from comet_sim.units import format_duration, format_size

__all__ = ["Views", "find_trace", "make_filter", "show_trace"]

_JSON_SCHEMA = 1
_TRACE = "trace"
_PHASES = {"set-up": "setup"}


@dataclass(frozen=True, slots=True)
class Views:
    """What to show; `depth` is how many components of an op path to tell apart, `limit` how many rows."""

    rounds: bool = False
    top: bool = False
    links: bool = False
    critical: bool = False
    reveals: bool = False
    depth: int | None = None
    limit: int = 40

    @property
    def any(self) -> bool:
        """Whether one was chosen; the usual ones are shown otherwise."""
        return self.rounds or self.top or self.links or self.critical or self.reveals


def find_trace(run: Path, system: str | None) -> Path:
    """Return the trace folder of a run folder, of one of its systems, or `run` itself if it is one."""
    if not run.is_dir():
        raise InputError(f"run folder {run}: no such folder")
    if system is None and (run / _TRACE).is_dir():
        return run / _TRACE
    if system is None and (run / "messages.parquet").is_file():
        return run
    found = sorted(
        each.parent.name for each in run.glob(f"*/{_TRACE}") if not each.parent.name.startswith(".")
    )
    if not found:
        raise InputError(f"run folder {run}: no finished system with a trace in it")
    if system is None and len(found) > 1:
        raise InputError(
            f"run folder {run} has several systems; choose one with --system: {', '.join(found)}"
        )
    if system is not None and system not in found:
        raise InputError(f"--system {system}: {run} has no such system; {suggestion(system, found)}")
    return run / (system or found[0]) / _TRACE


def make_filter(
    op: str | None, link: str | None, phase: str | None, token: int | None, layer: int | None
) -> Filter:
    """Return the filter the options describe; a link is written `server0->server1`."""
    pair: tuple[str, str] | None = None
    if link is not None:
        src, arrow, dst = link.partition("->")
        if not arrow or not src or not dst:
            raise InputError(f"--link {link!r}: write source->destination, such as 'server0->server1'")
        pair = (src, dst)
    return Filter(
        path=op, link=pair, phase=_PHASES.get(phase, phase) if phase else None, token=token, layer=layer
    )


def show_trace(folder: Path, filters: Filter, views: Views, *, verify: bool, as_json: bool) -> None:
    """Print the views asked for, of the part of the trace the filter keeps."""
    trace = Trace.load(folder)
    if verify:
        trace.verify()
    documents: dict[str, list[dict[str, Any]]] = {}
    tables: list[Table] = []
    part = trace.select(filters)
    for wanted, view in (
        (views.links or not views.any, _links),
        (views.top or not views.any, _top),
        (views.rounds, _rounds),
        (views.reveals or not views.any, _reveals),
        (views.reveals or not views.any, _dealer),
    ):
        if wanted:
            name, rows, shown = view(part, views)
            documents[name] = rows
            tables.append(shown)
    if views.critical:
        name, rows, shown = _critical(trace, filters, views)
        documents[name] = rows
        tables.append(shown)
    if as_json:
        print_json(
            {
                "schema": _JSON_SCHEMA,
                "trace": str(folder),
                "digest": trace.digest,
                "verified": verify,
                **documents,
            }
        )
        return
    out = console()
    for shown in tables:
        show(out, shown)
        out.print()
    out.print(f"digest {trace.digest}{', verified' if verify else ''}")


_View = tuple[str, list[dict[str, Any]], Table]


def _cut(rows: Sequence[Any], views: Views) -> tuple[Sequence[Any], str]:
    if len(rows) <= views.limit:
        return rows, ""
    return rows[: views.limit], f"; the first {views.limit} of {len(rows):,}, --limit shows more"


def _links(trace: Trace, views: Views) -> _View:
    rows, more = _cut(by_link(trace), views)
    columns = ("phase", "link", "messages", "payload", "on the wire")
    shown = table(f"Links (one direction each{more})", *columns, right=columns[2:])
    for row in rows:
        sizes = (format_size(row.payload), format_size(row.wire))
        shown.add_row(row.phase, f"{row.src}->{row.dst}", f"{row.messages:,}", *sizes)
    return "links", [row._asdict() for row in rows], shown


def _top(trace: Trace, views: Views) -> _View:
    found = sorted(by_op(trace, views.depth or 4), key=lambda row: -row.payload)
    rows, more = _cut(found, views)
    columns = ("phase", "operation", "rounds", "messages", "payload", "on the wire")
    title = f"Operations (all tokens and layers together, both directions{more})"
    shown = table(title, *columns, right=columns[2:])
    for row in rows:
        numbers = (f"{row.rounds:,}", f"{row.messages:,}", format_size(row.payload), format_size(row.wire))
        shown.add_row(row.phase, plain(row.op), *numbers)
    return "operations", [row._asdict() for row in rows], shown


def _rounds(trace: Trace, views: Views) -> _View:
    found = round_table(trace)
    rows, more = _cut(found.slice(0, views.limit).to_pylist(), views)
    if len(found) > len(rows):
        more = f"; the first {len(rows)} of {len(found):,}, --limit shows more"
    columns = ("phase", "depth", "operation", "between", "there", "back", "start", "duration")
    shown = table(f"Rounds (an exchange each, payload bytes{more})", *columns, right=("depth", *columns[4:]))
    for row in rows:
        sizes = (format_size(row["bytes_to_right"]), format_size(row["bytes_to_left"]))
        times = (format_duration(row["start"]), format_duration(row["duration"]))
        between = f"{row['left']}, {row['right']}"
        shown.add_row(row["phase"], f"{row['depth']:,}", plain(row["path"]), between, *sizes, *times)
    return "rounds", list(rows), shown


def _reveals(trace: Trace, views: Views) -> _View:
    rows, more = _cut(reveal_ledger(trace), views)
    columns = ("what", "to", "times", "elements", "why")
    shown = table(f"Revealed{more}", *columns, right=("times", "elements"))
    for row in rows:
        numbers = (f"{row.reveals:,}", f"{row.elements:,}")
        shown.add_row(plain(row.what), plain(row.audience), *numbers, plain(row.why))
    return "reveals", [row._asdict() for row in rows], shown


def _dealer(trace: Trace, views: Views) -> _View:
    found = sorted(dealer_requests(trace, views.depth or 1), key=lambda row: -row.correction)
    rows, more = _cut(found, views)
    columns = ("phase", "kind", "for", "requests", "elements", "corrections")
    shown = table(f"Dealer (elements; a correction takes 8 bytes{more})", *columns, right=columns[3:])
    for row in rows:
        numbers = (f"{row.requests:,}", f"{row.elements:,}", f"{row.correction:,}")
        shown.add_row(row.phase, row.kind, plain(row.op), *numbers)
    return "dealer", [row._asdict() for row in rows], shown


def _critical(trace: Trace, filters: Filter, views: Views) -> _View:
    if filters not in (Filter(), Filter(phase=filters.phase)):
        raise InputError("--critical-path follows a whole phase; of the filters it takes --phase only")
    path = critical_path(trace, filters.phase or "online")
    rows, more = _cut(path.by_op(views.depth or 4), views)
    parts = [name for name, time in path.parts.items() if time]
    total = format_duration(path.makespan)
    columns = ("operation", "steps", "time", "share", *(name.replace("_", " ") for name in parts))
    shown = table(f"Critical path of the {path.phase} phase, {total}{more}", *columns, right=columns[1:])
    for row in rows:
        share = f"{100 * row.total / path.makespan:.1f}%" if path.makespan else ""
        times = [format_duration(row.parts[name]) for name in parts]
        shown.add_row(plain(row.op), f"{row.steps:,}", format_duration(row.total), share, *times)
    document = [{"op": row.op, "steps": row.steps, "time_ns": row.total, "parts": row.parts} for row in rows]
    return "critical_path", document, shown
