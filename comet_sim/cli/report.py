"""The summary of a run on the screen; every figure says what it counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from comet_sim.cli.check import Comparison, differs_at
from comet_sim.cli.describe import describe_devices, describe_network
from comet_sim.cli.output import bar, plain, show, table
from comet_sim.cli.safe import escaped, one_line
from comet_sim.units import format_count, format_duration, format_size

__all__ = ["show_comparison", "show_summary", "show_systems"]

_READERS = {"server0": "S0", "server1": "S1", "dealer": "D", "user": "U"}
_SENDERS = ("server0", "server1", "dealer", "user", "owner")
_PARTS = {
    "compute": "compute",
    "device_queue": "device queue",
    "link_queue": "link queue",
    "host": "host (network stack)",
    "stall": "stall (transport)",
    "serialise": "serialise (link rate)",
    "propagate": "propagate (link delay)",
    "gap": "gap (unexplained)",
}
"""Parts of a critical path, by the names they have in traces."""


def show_summary(out: Console, summary: dict[str, Any], folder: Path, changes: Sequence[str] = ()) -> None:
    """Print what a run's summary says, and where the run is kept; `changes` are the overrides it was run with."""
    out.print(_heading(summary, changes))
    out.print(_conversation(summary))
    show(out, _latency(summary))
    tables = (
        _phases(summary),
        _where(summary, out),
        _parts(summary, out),
        _skipped(summary),
        _reveals(summary),
    )
    for shown in tables:
        if shown is not None:
            out.print()
            show(out, shown)
    out.print()
    show(out, _facts(summary, folder))
    for text in summary["warnings"]:
        out.print(Text("warning: ", style="bold yellow").append(one_line(text), style="yellow"))


def show_comparison(out: Console, label: str, comparison: Comparison) -> None:
    """Print whether a run's text is that of the plain model, and where it first differs."""
    if comparison.equal:
        out.print(
            Text(
                f"check {label}: equal, all {len(comparison.plain)} tokens, to {comparison.reference}",
                "green",
            )
        )
        _show_transformers(out, comparison)
        return
    at = comparison.first_difference
    out.print(
        Text(f"check {label}: output token {at} (from 0) differs from {comparison.reference}", "bold red")
    )
    out.print(plain(f"  private {list(comparison.private)}"))
    out.print(plain(f"  plain   {list(comparison.plain)} {comparison.plain_text!r}"))
    _show_transformers(out, comparison)


def _show_transformers(out: Console, comparison: Comparison) -> None:
    """Print how the text departs from plain transformers', where the suite computes other functions."""
    if comparison.transformers is None:
        return
    at = differs_at(comparison.private, comparison.transformers)
    said = "the same" if at is None else f"other text from output token {at} (from 0)"
    out.print(
        Text(f"  plain transformers, without these replacements, says {said}; no part of the check", "dim")
    )


def show_systems(out: Console, summaries: dict[str, dict[str, Any]]) -> None:
    """Print the systems of a scenario side by side, each figure with its ratio to the first system's."""
    rows = {label: _compared(summary) for label, summary in summaries.items()}
    first = {name: figure for name, figure in next(iter(rows.values())).items() if figure[0] is not None}
    shown = table(
        f"Side by side (online; bytes as server0 sends them; in brackets times {next(iter(rows))})",
        "system", *first, right=tuple(first),
    )  # fmt: skip
    for label, figures in rows.items():
        cells = (_beside(figures[name], first[name]) for name in first)
        shown.add_row(plain(label), *cells)
    show(out, shown)


def _compared(summary: dict[str, Any]) -> dict[str, tuple[int | None, str]]:
    """Return the figures systems are compared by, each with its text."""
    online = summary["phases"]["online"]
    corrections = 8 * summary["dealer"]["correction_elements"]
    sent = online["bytes"]["server0"]
    later = summary["token_ns"]
    return {
        "first token": (summary["first_token_ns"], format_duration(summary["first_token_ns"])),
        "a token": (later, "-" if later is None else format_duration(later)),
        "bytes": (sent, format_size(sent)),
        "rounds": (online["rounds"], f"{online['rounds']:,}"),
        "corrections": (corrections, format_size(corrections)),
    }


def _beside(figure: tuple[int | None, str], first: tuple[int | None, str]) -> str:
    (value, text), (base, _) = figure, first
    if value is None or not base:
        return text
    ratio = value / base
    return f"{text} ({ratio:.2f}x)" if 0.1 <= ratio < 100 else f"{text} ({ratio:.3g}x)"


def _heading(summary: dict[str, Any], changes: Sequence[str]) -> Text:
    line = Text(one_line(summary["title"] or summary["model"]), style="bold")
    facts = (summary["model"], summary["execution"], summary["system"], f"suite {summary['suite']}")
    below = [
        f"{', '.join(facts)}, seed {summary['seed']}",
        f"network {describe_network(summary['network'])}; {describe_devices(summary)}",
    ]
    if changes:
        below.append(f"overrides: {', '.join(changes)}")
    return line.append("".join(f"\n{one_line(each)}" for each in below), style="not bold dim")


def _conversation(summary: dict[str, Any]) -> Group | Panel | Text:
    batch, ids = summary["batch"], summary["token_ids"]
    several = batch > 1
    sequences = ids if several else [ids] * bool(ids)
    made = len(sequences[0]) if sequences else summary["output_tokens"]
    counts = f"{_tokens(summary['prompt_tokens'])} in, {_tokens(made)} out"
    if not sequences:
        each = f"{batch:,} prompts, each {counts}" if several else counts
        return Text(f"{each}; shapes only, so there is no text")
    prompts = summary["prompts"] if several else [summary["prompt"]]
    texts = (summary["texts"] or [None] * batch) if several else [summary["text"]]
    panels = []
    for number, (prompt, text, made_ids) in enumerate(zip(prompts, texts, sequences, strict=True), 1):
        title = f"{number} of {batch}: {counts}" if several else counts
        said = Text(_readable(prompt) if isinstance(prompt, str) else f"token ids {prompt}", style="dim")
        said.append(_readable(text) if text is not None else f"\n{made_ids}", style="not dim bold green")
        panels.append(Panel(said, title=plain(title), title_align="left", expand=False))
    return Group(*panels) if several else panels[0]


def _readable(text: str) -> str:
    """Return prompt or generated text with its lines kept, and nothing in it that steers the terminal."""
    return escaped(text.expandtabs(4))


def _tokens(count: int) -> str:
    return f"{count:,} token" if count == 1 else f"{count:,} tokens"


def _latency(summary: dict[str, Any]) -> Table:
    shown = table("", "", "", "")
    shown.add_row(
        "time to first token",
        format_duration(summary["first_token_ns"]),
        "online: virtual time from the request",
    )
    if summary.get("token_ns"):
        spread = f"{format_duration(summary['token_ns_min'])} to {format_duration(summary['token_ns_max'])}"
        shown.add_row(
            "time a token", format_duration(summary["token_ns"]), f"mean of the later tokens, {spread}"
        )
    return shown


def _phases(summary: dict[str, Any]) -> Table:
    sent = tuple(f"{party}" for party in _SENDERS)
    columns = ("phase", "time", "rounds", "messages", *sent)
    shown = table("Phases (payload bytes each party sent, all links)", *columns, right=columns[1:])
    for name, phase in summary["phases"].items():
        sizes = [format_size(phase["bytes"].get(party, 0)) for party in _SENDERS]
        counts = (format_duration(phase["time_ns"]), f"{phase['rounds']:,}", f"{phase['messages']:,}")
        shown.add_row(name, *counts, *sizes)
    return shown


def _where(summary: dict[str, Any], out: Console) -> Table | None:
    if not summary["where"]:
        return None
    shown = table(
        "Where the online time went (critical path; bytes a server sends to the other, rounds between them)",
        "operation", "", "share", "time", "rounds", "bytes",
        right=("share", "time", "rounds", "bytes"),
    )  # fmt: skip
    for row in summary["where"]:
        shown.add_row(
            plain(row["op"]),
            bar(row["share"], out),
            f"{100 * row['share']:.1f}%",
            format_duration(row["time_ns"]),
            f"{row['rounds']:,}",
            format_size(row["bytes"]),
        )
    return shown


def _parts(summary: dict[str, Any], out: Console) -> Table | None:
    total = sum(summary["parts"].values())
    if not total:
        return None
    shown = table("The same time by cause", "cause", "", "share", "time", right=("share", "time"))
    for name, time in sorted(summary["parts"].items(), key=lambda item: -item[1]):
        if time:
            share = time / total
            shown.add_row(
                _PARTS.get(name, name), bar(share, out), f"{100 * share:.1f}%", format_duration(time)
            )
    return shown


def _reveals(summary: dict[str, Any]) -> Table | None:
    if not summary["reveals"]:
        return None
    columns = ("what", *_READERS.values(), "times", "elements", "why")
    shown = table("What was revealed, and to whom", *columns, right=("times", "elements"))
    for row in summary["reveals"]:
        readers = row["audience"].split(",")
        marks = ("x" if party in readers else "" for party in _READERS)
        numbers = (f"{row['reveals']:,}", format_count(row["elements"]))
        shown.add_row(plain(row["what"]), *marks, *numbers, plain(row["why"]))
    return shown


def _skipped(summary: dict[str, Any]) -> Table | None:
    """Return what Comet left out: active shares of masks, what was sent of weights, and the KV cache."""
    comet = summary.get("comet")
    if not comet:
        return None
    shown = table(
        "What Comet skipped (shares of all entries of the masks opened)", "part", "figures", "detail"
    )
    for name, part in (("neurons", comet["neurons"]), ("heads", comet["heads"])):
        if part and part["density"] is not None:
            layers = ", ".join(f"{100 * share:.0f}%" for share in part["by_layer"][:8])
            more = " ..." if len(part["by_layer"]) > 8 else ""
            shown.add_row(
                name,
                f"{100 * part['density']:.1f}% active, {100 * part['columns_sent']:.1f}% of columns sent",
                f"active by layer: {layers}{more}",
            )
    cache = comet["cache"]
    if cache:
        shown.add_row(
            "KV cache",
            f"{cache['hits']:,} hits, {cache['misses']:,} misses",
            f"policy {comet['settings']['policy']}; {format_size(cache['kept_input_bytes'])} of layer inputs kept "
            "at each server for refills",
        )
    for name in ("neurons", "heads"):
        noise = comet["privacy"][name]
        if noise is None:
            continue
        if noise["counts"] == "exact":
            shown.add_row(f"counts of {name}", "exact", "no noise: exact counts are revealed")
            continue
        token = noise["one_token"]["epsilon"]
        total = (
            "no guarantee"
            if token is None
            else f"epsilon {token:.3g}, delta {noise['one_token']['delta']:.1g}"
        )
        shown.add_row(
            f"counts of {name}",
            f"noise: epsilon {noise['epsilon']:g}, delta {noise['delta']:g} a bit of one reveal",
            f"{noise['reveals']:,} reveals; for all bits of one token together: {total}",
        )
    products = comet["products"]
    if products["components_mean"] is not None:
        shown.add_row(
            "components",
            f"{products['components_mean']:.2f} a mask of several tokens, at most {products['components_max']}",
            f"the largest spans {100 * products['largest_component_share']:.1f}% of the blocks computed",
        )
    return shown


def _dealing(summary: dict[str, Any]) -> str:
    """Say when corrections were dealt, and what that cost: memory of the stock, and time on the critical path."""
    stock = format_size(8 * summary["dealer"]["stock_peak_elements"])
    line = f"dealt {summary['dealer_mode']}; server1 held at most {stock} of corrections"
    waited = summary["dealer_wait_ns"]
    return f"{line}; {format_duration(waited)} of the online time was spent on the dealer" if waited else line


def _facts(summary: dict[str, Any], folder: Path) -> Table:
    shown = table("", "", "")
    dealt = summary["dealer"]
    shown.add_row(
        "dealer",
        f"{dealt['requests']:,} pieces of correlated randomness, "
        f"{format_count(dealt['correction_elements'])} correction elements sent to server1, 8 bytes each",
    )
    shown.add_row("", _dealing(summary))
    wraps = summary["truncation"]
    if wraps is not None:
        shown.add_row(
            "truncation", f"{wraps['wraps']:,} wraps in {format_count(wraps['elements'])} truncated elements"
        )
    shown.add_row("trace digest", summary["digest"])
    shown.add_row("run folder", plain(folder))
    return shown
