"""Top costs: time on the critical path, bytes, rounds and compute of each op, side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from comet_sim.trace.columns import codes, group, ints, relabel, sums
from comet_sim.trace.critical import CriticalPath, critical_path
from comet_sim.trace.filters import Filter, collapse_all
from comet_sim.trace.query import by_op
from comet_sim.trace.schema import PHASES
from comet_sim.trace.store import Trace

__all__ = ["OpCost", "top"]


class OpCost(NamedTuple):
    """Costs of one op in one phase, tokens, layers and parties together; times in ns."""

    phase: str
    op: str
    critical: int
    """Time on the phase's critical path."""
    messages: int
    payload: int
    """Bytes of the buffers sent."""
    wire: int
    """Bytes on the wire, headers included."""
    rounds: int
    """Rounds between the servers, see `rounds`."""
    compute: int
    """Local work of all parties, at the same time or not."""


def top(
    trace: Trace,
    depth: int | None = None,
    filters: Filter | None = None,
    *,
    path_of: Callable[[str], CriticalPath] | None = None,
) -> list[OpCost]:
    """Return the costs by phase and op path, `depth` components; most time on the critical path first.

    `filters` choose what is counted; the critical path is that of the whole trace, and a step on it counts when
    the filter keeps it. `path_of` gives the critical path of a phase where it is known already.
    """
    follow = path_of or partial(critical_path, trace)
    part = trace.select(filters) if filters is not None else trace
    traffic = {(row.phase, row.op): row for row in by_op(part, depth)}
    work = _compute(part, depth)
    critical: dict[tuple[str, str], int] = {}
    phases = {phase for phase, _ in (*traffic, *work)}
    for phase in (each for each in PHASES if each in phases):
        for share in follow(phase).by_op(depth, filters):
            critical[phase, share.op] = share.total
    lines = []
    for key in dict.fromkeys((*traffic, *work, *critical)):
        row = traffic.get(key)
        sent = (row.messages, row.payload, row.wire, row.rounds) if row else (0, 0, 0, 0)
        lines.append(OpCost(*key, critical.get(key, 0), *sent, work.get(key, 0)))
    return sorted(lines, key=lambda line: (-line.critical, -line.payload, -line.compute, line[:2]))


def _compute(trace: Trace, depth: int | None) -> dict[tuple[str, str], int]:
    spans = trace.compute
    phase, phases = codes(spans, "phase")
    path, texts = codes(spans, "path")
    op, ops = relabel(path, collapse_all(texts, depth))
    first, inverse = group(phase, op)
    time = sums(inverse, len(first), ints(spans, "end") - ints(spans, "start"))
    return {
        (phases[phase[row]], ops[op[row]]): spent
        for row, spent in zip(first.tolist(), time.tolist(), strict=True)
    }
