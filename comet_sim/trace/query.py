"""Summaries of a trace: traffic by link and op, rounds, the reveal ledger, what the dealer was asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from comet_sim.errors import InputError
from comet_sim.trace.columns import Ints, codes, group, ints, relabel, sums
from comet_sim.trace.filters import PathPattern, collapse_all
from comet_sim.trace.schema import PHASES
from comet_sim.trace.store import Trace

__all__ = [
    "DealerTotal",
    "LinkTotal",
    "OpTotal",
    "RevealTotal",
    "by_link",
    "by_op",
    "dealer_requests",
    "phase_rounds",
    "reveal_ledger",
    "rounds",
]


class LinkTotal(NamedTuple):
    """Traffic of one direction of a link in one phase."""

    phase: str
    src: str
    dst: str
    messages: int
    payload: int
    """Bytes of the buffers sent."""
    wire: int
    """Bytes on the wire, headers included."""


class OpTotal(NamedTuple):
    """Traffic of one op in one phase, all tokens and layers and both directions together."""

    phase: str
    op: str
    messages: int
    payload: int
    wire: int
    rounds: int
    """Rounds between the servers, see `rounds`."""


class RevealTotal(NamedTuple):
    """One line of the reveal ledger: the same thing opened to the same parties for the same reason."""

    what: str
    why: str
    audience: str
    reveals: int
    elements: int


class DealerTotal(NamedTuple):
    """Correlated randomness of one kind for one op."""

    phase: str
    kind: str
    op: str
    requests: int
    elements: int
    """Elements each server expands from its seed."""
    correction: int
    """Elements the dealer sends, 8 bytes each."""


def by_link(trace: Trace) -> list[LinkTotal]:
    """Return messages and bytes by phase and direction, in the order of the phases, then by name."""
    messages = trace.messages
    phase, phases = _phase(trace, "messages")
    src, sources = _sorted(trace, "messages", "src")
    dst, targets = _sorted(trace, "messages", "dst")
    first, inverse = group(phase, src, dst)
    totals = _totals(inverse, len(first), ints(messages, "payload"), ints(messages, "wire"))
    return [
        LinkTotal(phases[phase[row]], sources[src[row]], targets[dst[row]], *total)
        for row, total in zip(first.tolist(), totals, strict=True)
    ]


def by_op(trace: Trace, depth: int | None = None) -> list[OpTotal]:
    """Return messages, bytes and rounds by phase and op path, tokens and layers collapsed.

    `depth` is how many components of the path to tell apart, all when None. Ops are in the order in which
    the run first used them.
    """
    messages = trace.messages
    phase, phases = _phase(trace, "messages")
    path, texts = codes(messages, "path")
    op, ops = relabel(path, collapse_all(texts, depth))
    first, inverse = group(phase, op)
    place, _ = relabel(path, [_head(text, depth) for text in texts])
    counted = _rounds_by_group(trace, inverse, len(first), phase, place)
    totals = [
        (*total, each)
        for total, each in zip(
            _totals(inverse, len(first), ints(messages, "payload"), ints(messages, "wire")),
            counted,
            strict=True,
        )
    ]
    lines = [
        (int(phase[row]), row, OpTotal(phases[phase[row]], ops[op[row]], *total))
        for row, total in zip(first.tolist(), totals, strict=True)
    ]
    return [line for _, _, line in sorted(lines, key=lambda each: each[:2])]


def rounds(trace: Trace, path: str = "", phase: str | None = None) -> int:
    """Return the rounds between the servers inside the op paths that the pattern `path` covers.

    Each place the pattern covers (a token's layer, say) counts the distinct depths of the messages between
    servers below it, and the counts are added: `token0/layer0/ffn` is one place, `*/layer*/ffn` one a token
    and layer. An empty pattern covers each phase as a whole.
    """
    if phase is not None and phase not in PHASES:
        raise InputError(f"phase {phase!r}: accepted are {', '.join(PHASES)}")
    messages = trace.messages
    numbers, texts = codes(messages, "path")
    pattern = PathPattern(path)
    covered = [pattern.prefix(text) for text in texts]
    place, places = relabel(numbers, ["/" if each is None else each for each in covered])
    inside = np.array([each != "/" for each in places], dtype=np.bool_)[place]
    kinds, phases = _phase(trace, "messages")
    if phase is not None:
        inside &= kinds == phases.index(phase)
    return _rounds_by_group(trace, np.where(inside, 0, 1), 2, kinds, place)[0]


def phase_rounds(trace: Trace) -> dict[str, int]:
    """Return the rounds of each phase: the longest chain of messages that depend on each other."""
    phase, phases = _phase(trace, "messages")
    deepest = np.zeros(len(phases), dtype=np.int64)
    np.maximum.at(deepest, phase, ints(trace.messages, "depth"))
    return dict(zip(phases, deepest.tolist(), strict=True))


def reveal_ledger(trace: Trace) -> list[RevealTotal]:
    """Return what was opened, to whom and why, with how often and how many elements."""
    what, whats = _sorted(trace, "reveals", "what")
    why, whys = _sorted(trace, "reveals", "why")
    audience, audiences = _sorted(trace, "reveals", "audience")
    first, inverse = group(what, why, audience)
    totals = _totals(inverse, len(first), ints(trace.reveals, "elements"))
    return [
        RevealTotal(whats[what[row]], whys[why[row]], audiences[audience[row]], *total)
        for row, total in zip(first.tolist(), totals, strict=True)
    ]


def dealer_requests(trace: Trace, depth: int | None = None) -> list[DealerTotal]:
    """Return requests, elements and correction elements by phase, kind and op path collapsed to `depth`."""
    phase, phases = _phase(trace, "dealer")
    kind, kinds = _sorted(trace, "dealer", "kind")
    path, texts = codes(trace.dealer, "path")
    op, ops = relabel(path, collapse_all(texts, depth))
    first, inverse = group(phase, kind, op)
    totals = _totals(inverse, len(first), ints(trace.dealer, "elements"), ints(trace.dealer, "correction"))
    return [
        DealerTotal(phases[phase[row]], kinds[kind[row]], ops[op[row]], *total)
        for row, total in zip(first.tolist(), totals, strict=True)
    ]


def _rounds_by_group(trace: Trace, groups: Ints, count: int, phase: Ints, place: Ints) -> list[int]:
    """Count in each group the distinct (place, phase, depth) of messages between servers."""
    between = np.ones(len(groups), dtype=np.bool_)
    for end in ("src", "dst"):
        numbers, texts = codes(trace.messages, end)
        between &= np.array([text.startswith("server") for text in texts], dtype=np.bool_)[numbers]
    kept = groups[between]
    depth = ints(trace.messages, "depth")[between]
    first, _ = group(kept, phase[between], place[between], depth)
    counted: list[int] = sums(kept[first], count).tolist()
    return counted


def _phase(trace: Trace, table: str) -> tuple[Ints, list[str]]:
    """Return the phase of each row as its place in time, whatever phases the table holds."""
    numbers, texts = codes(trace.table(table), "phase")
    return np.array([PHASES.index(text) for text in texts], dtype=np.int64)[numbers], list(PHASES)


def _sorted(trace: Trace, table: str, column: str) -> tuple[Ints, list[str]]:
    return relabel(*codes(trace.table(table), column))


def _totals(inverse: Ints, groups: int, *values: Ints) -> list[tuple[int, ...]]:
    """Return for each group its number of rows and the sum of each of `values`."""
    columns = [sums(inverse, groups), *(sums(inverse, groups, each) for each in values)]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _head(path: str, depth: int | None) -> str:
    return path if depth is None else "/".join(path.split("/", depth)[:depth])
