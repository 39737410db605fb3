"""Asserts on what a run cost: rounds, bytes, virtual time and openings, with the offending rows in the message.

Each takes a `ProtocolRun`, a simulation's result, or a `Trace`. `op` is a pattern over op paths, as
`comet_sim.trace.PathPattern` reads it: `token0/layer0/ffn/relu`, `*/layer*/ffn`; empty for everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np

from comet_sim.errors import InputError
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.export import round_table
from comet_sim.trace.filters import Filter, PathPattern, collapse
from comet_sim.trace.query import reveal_ledger, rounds
from comet_sim.trace.store import Trace

__all__ = ["Traced", "assert_bytes", "assert_reveals", "assert_rounds", "assert_time"]

_SHOWN = 12
"""Rows a message shows at most."""

_Order = Literal["start", "bytes", "duration"]


class Traced(Protocol):
    """Anything that has a trace."""

    @property
    def trace(self) -> Trace:
        """Trace of a finished run."""


def assert_rounds(
    run: Traced | Trace,
    *,
    op: str = "",
    exactly: int | None = None,
    at_most: int | None = None,
    phase: str = "online",
) -> int:
    """Check the rounds between the servers inside an op, and return them.

    Where the pattern covers several places (the layers of a model, say) their rounds are added.
    """
    part = _part(run, op, phase, exactly)
    return _check("rounds", rounds(part, op, phase), exactly, at_most, part, op, "start")


def assert_bytes(
    run: Traced | Trace,
    *,
    op: str = "",
    exactly: int | None = None,
    at_most: int | None = None,
    phase: str = "online",
    src: str = "server0",
    dst: str = "server1",
) -> int:
    """Check the payload bytes one party sends another inside an op, and return them."""
    part = _part(run, op, phase, exactly)
    sent = part.select(Filter(link=(src, dst))) if len(part.messages) else part
    found = int(ints(sent.messages, "payload").sum())
    return _check(f"bytes {src}->{dst}", found, exactly, at_most, sent, op, "bytes")


def assert_time(
    run: Traced | Trace,
    *,
    op: str = "",
    exactly: int | None = None,
    at_most: int | None = None,
    phase: str = "online",
) -> int:
    """Check the virtual time of an op, ns, and return it.

    It lasts from the first message created or work ready inside it to the last message delivered or work
    done. Where the pattern covers several places their times are added.
    """
    part = _part(run, op, phase, exactly)
    pattern = PathPattern(op)
    spans: dict[str, tuple[int, int]] = {}
    for table, begin, end in (("messages", "created", "delivered"), ("compute", "ready", "end")):
        rows = part.table(table)
        numbers, texts = codes(rows, "path")
        places = [pattern.prefix(text) or "" for text in texts]
        starts, ends = ints(rows, begin), ints(rows, end)
        for code in np.unique(numbers).tolist():
            mine = numbers == code
            first, last = int(starts[mine].min()), int(ends[mine].max())
            known = spans.get(places[code], (first, last))
            spans[places[code]] = (min(first, known[0]), max(last, known[1]))
    found = sum(last - first for first, last in spans.values())
    return _check("ns", found, exactly, at_most, part, op, "duration")


def assert_reveals(run: Traced | Trace, expected: Mapping[tuple[str, str], int | None]) -> None:
    """Check that exactly the expected values were opened.

    `expected` maps (what, audience) to the number of elements, None for any; an audience of several parties
    is written as in the ledger, `server0,server1`.
    """
    found: dict[tuple[str, str], int] = {}
    lines = []
    for row in reveal_ledger(_trace(run)):
        key = (row.what, row.audience)
        found[key] = found.get(key, 0) + row.elements
        lines.append(f"{row.what} to {row.audience}: {row.elements} elements in {row.reveals} ({row.why})")
    wrong = [
        f"{what} to {audience}: expected {_wanted(expected, (what, audience))}, "
        f"found {found.get((what, audience), 'nothing')}"
        for what, audience in sorted({*found, *expected})
        if not _fits(found, expected, (what, audience))
    ]
    if wrong:
        raise AssertionError("\n".join(["reveals differ:", *wrong, "the ledger:", *(lines or ["(empty)"])]))


def _fits(
    found: Mapping[tuple[str, str], int], expected: Mapping[tuple[str, str], int | None], key: tuple[str, str]
) -> bool:
    if key not in found or key not in expected:
        return False
    return expected[key] is None or expected[key] == found[key]


def _wanted(expected: Mapping[tuple[str, str], int | None], key: tuple[str, str]) -> str:
    if key not in expected:
        return "nothing"
    return "any number" if expected[key] is None else str(expected[key])


def _trace(run: Traced | Trace) -> Trace:
    return run if isinstance(run, Trace) else run.trace


def _part(run: Traced | Trace, op: str, phase: str, exactly: int | None) -> Trace:
    """Return the rows of an op; a pattern that matches nothing fails, or a typo would pass every bound."""
    trace = _trace(run)
    part = trace.select(Filter(path=op or None, phase=phase))
    if exactly != 0 and not len(part.messages) and not len(part.compute):
        _, texts = codes(trace.messages, "path")
        known = sorted({collapse(text) for text in texts})
        more = f" and {len(known) - 40} more" if len(known) > 40 else ""
        raise AssertionError(
            f"no record of phase {phase!r} matches op {op!r}; the run's ops: {', '.join(known[:40])}{more}"
        )
    return part


def _check(
    what: str,
    found: int,
    exactly: int | None,
    at_most: int | None,
    part: Trace,
    op: str,
    order: _Order,
) -> int:
    if (exactly is None) == (at_most is None):
        raise InputError(f"assert on {what}: give one of exactly= and at_most=, not both or neither")
    if found == exactly or (at_most is not None and found <= at_most):
        return found
    bound = f"exactly {exactly:,}" if exactly is not None else f"at most {at_most:,}"
    raise AssertionError(f"op {op or '(all)'}: {found:,} {what}, expected {bound}\n{_table(part, order)}")


def _table(part: Trace, order: _Order) -> str:
    """Return the rounds of the rows as text: in order of time, or the largest first."""
    columns = round_table(part).to_pydict()
    sizes = [a + b for a, b in zip(columns["bytes_to_right"], columns["bytes_to_left"], strict=True)]
    key = sizes if order == "bytes" else columns["duration"]
    rows = range(len(sizes)) if order == "start" else sorted(range(len(sizes)), key=lambda i: (-key[i], i))
    lines = [
        f"{'depth':>6} {'between':17} {'bytes ->':>10} {'bytes <-':>10} {'start ns':>13} {'end ns':>13} op"
    ]
    lines += [
        f"{columns['depth'][i]:>6} {columns['left'][i] + ' ' + columns['right'][i]:17} "
        f"{columns['bytes_to_right'][i]:>10} {columns['bytes_to_left'][i]:>10} "
        f"{columns['start'][i]:>13} {columns['end'][i]:>13} {columns['path'][i]}"
        for i in rows[:_SHOWN]
    ]
    if len(rows) > _SHOWN:
        lines.append(f"... and {len(rows) - _SHOWN} more")
    return "\n".join(lines)
