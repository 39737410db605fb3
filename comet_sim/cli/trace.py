"""`comet-sim trace`: rounds, costs by operation, links, critical path, stalls and digest of a finished run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.cli.trace_analysis import Analysis, Shown, critical_views, cut, stall_views, top_views
from comet_sim.errors import InputError
from comet_sim.trace import Filter, Trace
from comet_sim.trace.export import round_table
from comet_sim.trace.hints import why_nothing
from comet_sim.trace.query import by_link, dealer_requests, reveal_ledger
from comet_sim.units import format_duration, format_size

__all__ = ["Views", "make_filter", "show_trace"]

_JSON_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Views:
    """What to show; `depth` is how many components of an op path to tell apart, `limit` how many rows."""

    rounds: bool = False
    top: bool = False
    links: bool = False
    critical: bool = False
    stalls: bool = False
    reveals: bool = False
    depth: int | None = None
    limit: int = 40

    @property
    def any(self) -> bool:
        """Whether one was chosen; the usual ones are shown otherwise."""
        return self.rounds or self.top or self.links or self.critical or self.stalls or self.reveals


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
    return Filter(path=op, link=pair, phase=phase, token=token, layer=layer)


def show_trace(folder: Path, filters: Filter, views: Views, *, verify: bool, as_json: bool) -> None:
    """Print the views asked for, of the part of the trace the filter keeps."""
    trace = Trace.load(folder)
    if verify:
        trace.verify()
    part = trace.select(filters)
    found = _shown(trace, part, filters, views)
    nothing = filters != Filter() and not any(each.rows for each in found)
    if as_json:
        print_json(
            {
                "schema": _JSON_SCHEMA,
                "trace": str(folder),
                "digest": trace.digest,
                "verified": verify,
                **({"nothing": why_nothing(trace, filters)} if nothing else {}),
                **{each.name: each.rows for each in found},
            }
        )
        return
    out = console()
    if views.reveals and filters.link is not None:
        out.print(plain("reveals and the dealer's part are of no link: --link leaves them out"))
    if nothing and found:
        out.print(plain(why_nothing(trace, filters)))
    for each in found:
        if each.rows:
            show(out, each.table)
            out.print()
        elif views.any and not nothing:
            out.print(plain(f"{each.table.title}: none"))
            out.print()
    out.print(f"digest {trace.digest}, {'verified' if verify else 'not verified: --verify recomputes it'}")


def _shown(trace: Trace, part: Trace, filters: Filter, views: Views) -> list[Shown]:
    """Return the views chosen, or else the usual ones, without those that the filter says nothing about."""
    found: list[Shown] = []
    for wanted, view in (
        (views.links or not views.any, _links),
        (views.rounds, _rounds),
        ((views.reveals or not views.any) and filters.link is None, _reveals),
        ((views.reveals or not views.any) and filters.link is None, _dealer),
    ):
        if wanted:
            found.append(view(part, views))
    # These look at the whole trace, and show of it what the filter keeps.
    analysis = Analysis(trace, filters, views.depth, views.limit)
    for wanted, analyse in (
        (views.top or not views.any, top_views),
        (views.critical, critical_views),
        (views.stalls, stall_views),
    ):
        if wanted:
            found += analyse(analysis)
    return found


def _links(trace: Trace, views: Views) -> Shown:
    rows, more = cut(by_link(trace), views.limit)
    columns = ("phase", "link", "messages", "payload", "on the wire")
    shown = table(f"Links (one direction each{more})", *columns, right=columns[2:])
    for row in rows:
        sizes = (format_size(row.payload), format_size(row.wire))
        shown.add_row(row.phase, f"{row.src}->{row.dst}", f"{row.messages:,}", *sizes)
    return Shown("links", [row._asdict() for row in rows], shown)


def _rounds(trace: Trace, views: Views) -> Shown:
    found = round_table(trace)
    rows, more = cut(found.slice(0, views.limit).to_pylist(), views.limit)
    if len(found) > len(rows):
        more = f"; the first {len(rows)} of {len(found):,}, --limit shows more"
    columns = ("phase", "depth", "operation", "between", "there", "back", "start", "duration")
    shown = table(f"Rounds (an exchange each, payload bytes{more})", *columns, right=("depth", *columns[4:]))
    for row in rows:
        sizes = (format_size(row["bytes_to_right"]), format_size(row["bytes_to_left"]))
        times = (format_duration(row["start"]), format_duration(row["duration"]))
        between = f"{row['left']}, {row['right']}"
        shown.add_row(row["phase"], f"{row['depth']:,}", plain(row["path"]), between, *sizes, *times)
    return Shown("rounds", list(rows), shown)


def _reveals(trace: Trace, views: Views) -> Shown:
    rows, more = cut(reveal_ledger(trace), views.limit)
    columns = ("what", "to", "times", "elements", "why")
    shown = table(f"Revealed{more}", *columns, right=("times", "elements"))
    for row in rows:
        numbers = (f"{row.reveals:,}", f"{row.elements:,}")
        shown.add_row(plain(row.what), plain(row.audience), *numbers, plain(row.why))
    return Shown("reveals", [row._asdict() for row in rows], shown)


def _dealer(trace: Trace, views: Views) -> Shown:
    found = sorted(dealer_requests(trace, views.depth or 1), key=lambda row: -row.correction)
    rows, more = cut(found, views.limit)
    columns = ("phase", "kind", "for", "requests", "elements", "corrections")
    shown = table(f"Dealer (elements; a correction takes 8 bytes{more})", *columns, right=columns[3:])
    for row in rows:
        numbers = (f"{row.requests:,}", f"{row.elements:,}", f"{row.correction:,}")
        shown.add_row(row.phase, row.kind, plain(row.op), *numbers)
    return Shown("dealer", [row._asdict() for row in rows], shown)
