"""Summaries of a trace: traffic by link and op, rounds, the reveal ledger, what the dealer was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from comet_sim.trace.columns import codes, distinct, group, ints, relabel, sums
from comet_sim.trace.filters import PathPattern, collapse_all, head
from comet_sim.trace.schema import PHASES, phase_name
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
    totals = _tally(trace, "messages", ("phase", "src", "dst"), ("payload", "wire"))
    return sorted((LinkTotal._make((*key, *total)) for key, total in totals.items()), key=_in_order)


def by_op(trace: Trace, depth: int | None = None, *, between_servers: bool = False) -> list[OpTotal]:
    """Return messages, bytes and rounds by phase and op path, tokens and layers collapsed.

    `depth` is how many components of the path to tell apart, all when None; `between_servers` leaves out the
    messages of other parties. Phases are in the order of time, ops in that in which the run first used them.
    """
    names = ("phase", "path", *(("src", "dst") if between_servers else ()))
    totals: dict[tuple[str, str], list[int]] = {}
    for key, total in _tally(trace, "messages", names, ("payload", "wire"), depth).items():
        if all(party.startswith("server") for party in key[2:]):
            known = totals.setdefault((key[0], key[1]), [0, 0, 0])
            known[:] = [sum(pair) for pair in zip(known, total, strict=True)]
    counted: Counter[tuple[str, str]] = Counter()
    found = _depths(trace, lambda texts: [head(text, depth) for text in texts])
    for (phase, _), op, count in zip(
        found, collapse_all([place for _, place in found]), found.values(), strict=True
    ):
        counted[phase, op] += count
    lines = [OpTotal(*key, total[0], total[1], total[2], counted[key]) for key, total in totals.items()]
    return sorted(lines, key=lambda line: PHASES.index(line.phase))


def rounds(trace: Trace, path: str = "", phase: str | None = None) -> int:
    """Return the rounds between the servers inside the op paths that the pattern `path` covers.

    Each place the pattern covers (a token's layer, say) counts the distinct depths of the messages between
    servers below it, and the counts are added: `token0/layer0/ffn` is one place, `*/layer*/ffn` one a token
    and layer. An empty pattern covers each phase as a whole.
    """
    wanted = None if phase is None else phase_name(phase)
    pattern = PathPattern(path)
    found = _depths(trace, lambda texts: [pattern.prefix(text) for text in texts])
    return sum(count for (each, _), count in found.items() if wanted in (None, each))


def phase_rounds(trace: Trace) -> dict[str, int]:
    """Return the rounds between the servers in each phase as a whole."""
    found = _depths(trace, lambda texts: [""] * len(texts))
    return {phase: found.get((phase, ""), 0) for phase in PHASES}


def reveal_ledger(trace: Trace) -> list[RevealTotal]:
    """Return what was opened, to whom and why, with how often and how many elements."""
    totals = _tally(trace, "reveals", ("what", "why", "audience"), ("elements",))
    return [RevealTotal._make((*key, *totals[key])) for key in sorted(totals)]


def dealer_requests(trace: Trace, depth: int | None = None) -> list[DealerTotal]:
    """Return requests, elements and correction elements by phase, kind and op path collapsed to `depth`."""
    totals = _tally(trace, "dealer", ("phase", "kind", "path"), ("elements", "correction"), depth)
    return sorted((DealerTotal._make((*key, *total)) for key, total in totals.items()), key=_in_order)


def _in_order(line: LinkTotal | DealerTotal) -> tuple[int, tuple[str, ...]]:
    return PHASES.index(line.phase), (str(line[1]), str(line[2]))


def _tally(
    trace: Trace, table: str, names: Sequence[str], values: Sequence[str], depth: int | None = None
) -> dict[tuple[str, ...], list[int]]:
    """Count rows and add `values` by the texts of the columns `names`, op paths collapsed to `depth`.

    Keys are in the order of first use. Goes through the trace block by block.
    """
    totals: dict[tuple[str, ...], list[int]] = {}
    for block in trace.blocks(table, (*names, *values)):
        columns = []
        for name in names:
            numbers, texts = codes(block, name)
            columns.append(relabel(numbers, collapse_all(texts, depth) if name == "path" else texts))
        first, inverse = group(*(numbers for numbers, _ in columns))
        added = [
            sums(inverse, len(first)),
            *(sums(inverse, len(first), ints(block, value)) for value in values),
        ]
        for i in np.argsort(first, kind="stable").tolist():
            key = tuple(texts[numbers[first[i]]] for numbers, texts in columns)
            total = totals.setdefault(key, [0] * len(added))
            for place, each in enumerate(added):
                total[place] += int(each[i])
    return totals


def _depths(
    trace: Trace, place_of: Callable[[Sequence[str]], Sequence[str | None]]
) -> dict[tuple[str, str], int]:
    """Count the distinct depths of messages between servers by phase and place.

    `place_of` gives the place of each op path, None for paths that do not count.
    """
    known: dict[str, int] = {}
    found = [np.zeros(0, dtype=np.int64)]
    for block in trace.blocks("messages", ("phase", "path", "src", "dst", "depth")):
        path, texts = codes(block, "path")
        labels = [None if each is None else known.setdefault(each, len(known)) for each in place_of(texts)]
        place = np.array([-1 if each is None else each for each in labels], dtype=np.int64)[path]
        counts = place >= 0
        for end in ("src", "dst"):
            numbers, names = codes(block, end)
            counts &= np.array([name.startswith("server") for name in names], dtype=np.bool_)[numbers]
        numbers, names = codes(block, "phase")
        phase = np.array([PHASES.index(name) for name in names], dtype=np.int64)[numbers]
        # Depths have 31 bits; what is left holds more places than memory.
        packed = (place * len(PHASES) + phase) << 31 | ints(block, "depth")
        found.append(distinct(packed[counts]))
    # Blocks overlap little, if at all: what one op does lies close together.
    both, count = np.unique(distinct(np.concatenate(found)) >> 31, return_counts=True)
    places = list(known)
    return {
        (PHASES[key % len(PHASES)], places[key // len(PHASES)]): number
        for key, number in zip(both.tolist(), count.tolist(), strict=True)
    }
