"""The summary of a run, computed from its trace: every figure says which party, phase or path it counts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from comet_sim.events import Phase
from comet_sim.simulation.stage import PARTIES, PHASES, Outcome
from comet_sim.trace.critical import critical_path
from comet_sim.trace.query import by_link, by_op, dealer_requests, phase_rounds, reveal_ledger
from comet_sim.trace.store import Trace

__all__ = ["SUMMARY_SCHEMA", "summarise"]

SUMMARY_SCHEMA = 2

_ONLINE = Phase.ONLINE.label
_PART_DEPTH = 3
"""Components of an op path that name a part of the model: token, layer, attention or ffn."""


def summarise(trace: Trace, outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a run, JSON-able: times in ns, sizes in payload bytes."""
    first, later = _token_times(outcome)
    return {
        "schema": SUMMARY_SCHEMA,
        "token_ids": outcome.token_ids,
        "phases": _phases(trace, outcome),
        "first_token_ns": first,
        "token_ns": round(sum(later) / len(later)) if later else None,
        "token_ns_min": min(later, default=None),
        "token_ns_max": max(later, default=None),
        **_where(trace),
        "reveals": [line._asdict() for line in reveal_ledger(trace)],
        "dealer": _dealer(trace, outcome),
        "truncation": (
            {"elements": outcome.auditor.truncated, "wraps": outcome.auditor.wraps}
            if outcome.auditor
            else None
        ),
        "digest": trace.digest,
    }


def _token_times(outcome: Outcome) -> tuple[int, list[int]]:
    """Return the time to the first token from the start of the online phase, and of each later token."""
    times = [outcome.phase_ends[Phase.OFFLINE], *outcome.token_times]
    steps = [end - start for start, end in pairwise(times)]
    return steps[0], steps[1:]


def _phases(trace: Trace, outcome: Outcome) -> dict[str, Any]:
    rounds = phase_rounds(trace)
    links = by_link(trace)
    phases = {}
    start = 0
    for phase, name in PHASES.items():
        rows = [row for row in links if row.phase == name]
        end = outcome.phase_ends[phase]
        phases[name] = {
            "time_ns": end - start,
            "rounds": rounds[name],
            "messages": sum(row.messages for row in rows),
            "bytes": {party: sum(row.payload for row in rows if row.src == party) for party in PARTIES},
            "links": {
                f"{row.src}->{row.dst}": {"messages": row.messages, "payload": row.payload, "wire": row.wire}
                for row in rows
            },
        }
        start = end
    return phases


def _where(trace: Trace) -> dict[str, Any]:
    """Split the online time along its critical path, by part of the model and by what the time was spent on.

    Bytes and rounds beside it are those between the servers: bytes as one server sends them.
    """
    traffic: dict[str, list[int]] = {}
    for row in by_op(trace, _PART_DEPTH, between_servers=True):
        if row.phase == _ONLINE:
            counted = traffic.setdefault(_part(row.op), [0, 0])
            counted[0] += row.payload
            counted[1] += row.rounds
    path = critical_path(trace, _ONLINE)
    times: dict[str, int] = {}
    for share in path.by_op(_PART_DEPTH):
        times[_part(share.op)] = times.get(_part(share.op), 0) + share.total
    where = [
        {
            "op": op,
            "time_ns": time,
            "share": time / path.makespan if path.makespan else 0.0,
            "bytes": traffic.get(op, (0, 0))[0] // 2,
            "rounds": traffic.get(op, (0, 0))[1],
        }
        for op, time in sorted(times.items(), key=lambda item: (-item[1], item[0]))
    ]
    return {"where": where, "parts": path.parts, "dealer_wait_ns": path.time_with("dealer")}


def _part(op: str) -> str:
    """Return the part of the model an op belongs to: of a layer attention and feed-forward apart, else whole."""
    token, *below = op.split("/")
    return "/".join((token, *below[: _PART_DEPTH - 1 if below and below[0].startswith("layer") else 1]))


def _dealer(trace: Trace, outcome: Outcome) -> dict[str, Any]:
    by_kind: dict[str, dict[str, int]] = {}
    for row in dealer_requests(trace, 1):
        total = by_kind.setdefault(row.kind, {"requests": 0, "elements": 0, "correction_elements": 0})
        total["requests"] += row.requests
        total["elements"] += row.elements
        total["correction_elements"] += row.correction
    return {
        "requests": sum(kind["requests"] for kind in by_kind.values()),
        "correction_elements": sum(kind["correction_elements"] for kind in by_kind.values()),
        "stock_peak_elements": outcome.stock_peak,
        "unused_elements": outcome.stock_left,
        "by_kind": by_kind,
    }
