"""The critical path of a phase: the chain of events that decided when it ended, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE
from comet_sim.trace.columns import Ints, codes, ints, relabel, sums
from comet_sim.trace.filters import collapse
from comet_sim.trace.schema import PHASES
from comet_sim.trace.store import Trace

__all__ = ["PARTS", "CriticalPath", "OpShare", "critical_path"]

PARTS = ("compute", "device_queue", "link_queue", "host", "stall", "serialise", "propagate", "gap")
"""What the time of a step can be spent on; `gap` is idle time that no recorded event explains."""

_MESSAGE_PARTS = {
    "link_queue": "queued",
    "host": "host",
    "stall": "stall",
    "serialise": "serialise",
    "propagate": "propagate",
}


@dataclass(frozen=True, slots=True)
class OpShare:
    """Time on the critical path spent in one op, ns by part."""

    op: str
    steps: int
    total: int
    parts: dict[str, int]


class CriticalPath:
    """Steps of a critical path in the order of time; `parts` add up to `makespan` exactly."""

    def __init__(self, phase: str, start: int, end: int, events: _Events, rows: Ints, gaps: Ints) -> None:
        self.phase = phase
        self.start = start
        """Virtual time the phase's first event began, ns."""
        self.end = end
        """Virtual time its last event ended, ns."""
        self._events = events
        self._rows = rows
        self._gaps = gaps

    @property
    def makespan(self) -> int:
        """Duration of the phase, ns."""
        return self.end - self.start

    @cached_property
    def steps(self) -> pa.Table:
        """One row a step: id, kind (`message` or `compute`), path, src, dst, begin, end, and the parts in ns.

        Work of a party has that party as `src` and an empty `dst`; a step's `gap` lies before its `begin`.
        """
        events, rows = self._events, self._rows
        columns: dict[str, pa.Array] = {"id": pa.array(events.id[rows])}
        kinds = pa.array(["message", "compute"], pa.string())
        is_compute = (rows >= events.messages).astype(np.int8)
        columns["kind"] = pa.DictionaryArray.from_arrays(pa.array(is_compute), kinds)
        for name in ("path", "src", "dst"):
            numbers, texts = events.text(name, rows)
            columns[name] = pa.DictionaryArray.from_arrays(
                pa.array(numbers.astype(np.int32)), pa.array(texts)
            )
        columns["begin"] = pa.array(events.begin[rows])
        columns["end"] = pa.array(events.end[rows])
        columns |= {part: pa.array(values) for part, values in self._values.items()}
        return pa.table(columns)

    @cached_property
    def parts(self) -> dict[str, int]:
        """Time by part, ns, all of `PARTS`."""
        return {part: int(values.sum()) for part, values in self._values.items()}

    def by_op(self, depth: int | None = None) -> list[OpShare]:
        """Return the time by op path, tokens and layers collapsed, `depth` components; longest first."""
        numbers, texts = self._events.text("path", self._rows)
        op, ops = relabel(numbers, [collapse(text, depth) for text in texts])
        steps = sums(op, len(ops)).tolist()
        parts = {part: sums(op, len(ops), values).tolist() for part, values in self._values.items()}
        shares = [
            OpShare(
                text, steps[i], sum(each[i] for each in parts.values()), {k: v[i] for k, v in parts.items()}
            )
            for i, text in enumerate(ops)
            if steps[i]
        ]
        return sorted(shares, key=lambda share: (-share.total, share.op))

    @cached_property
    def _values(self) -> dict[str, Ints]:
        values = {part: self._events.part(part, self._rows) for part in PARTS if part != "gap"}
        return values | {"gap": self._gaps}


def critical_path(trace: Trace, phase: str = "online") -> CriticalPath:
    """Walk the causes back from the last event of `phase` (latest end, then highest id).

    The phase lasts from the begin of its first event; causes outside it end the walk. Raises `InputError`
    when the phase has no events or an event begins before its cause ended.
    """
    if phase not in PHASES:
        raise InputError(f"phase {phase!r}: accepted are {', '.join(PHASES)}")
    events = _Events(trace)
    inside = np.flatnonzero(events.phase == PHASES.index(phase))
    if not inside.size:
        raise InputError(f"{trace.where}: nothing happened in phase {phase!r}, so it has no critical path")
    start, end = int(events.begin[inside].min()), int(events.end[inside].max())
    last = inside[events.end[inside] == end]
    rows = _walk(_parents(events, inside), int(last[np.argmax(events.id[last])]))
    before = np.concatenate([[start], events.end[rows[:-1]]])
    gaps = events.begin[rows] - before
    if (gaps < 0).any():
        bad = int(rows[np.argmax(gaps < 0)])
        raise InputError(
            f"{trace.where}: event {events.id[bad]} begins at {events.begin[bad]} ns, "
            f"before its cause {events.cause[bad]} ended"
        )
    return CriticalPath(phase, start, end, events, rows, gaps)


class _Events:
    """Messages, then spans of local work, as one numbered list of events."""

    def __init__(self, trace: Trace) -> None:
        self._message_table, self._compute_table = trace.messages, trace.compute
        self.messages = len(trace.messages)
        self.id = self._both("id", "id")
        self.cause = self._both("cause", "cause")
        self.begin = self._both("created", "ready")
        self.end = self._both("delivered", "end")
        phases = []
        for table in (trace.messages, trace.compute):
            numbers, texts = codes(table, "phase")
            phases.append(np.array([PHASES.index(text) for text in texts], dtype=np.int64)[numbers])
        self.phase: Ints = np.concatenate(phases)

    def part(self, part: str, rows: Ints) -> Ints:
        """Return the time each of `rows` spent on `part`, ns."""
        values = np.zeros(len(rows), dtype=np.int64)
        sent = rows < self.messages
        if part in _MESSAGE_PARTS:
            values[sent] = ints(self._message_table, _MESSAGE_PARTS[part])[rows[sent]]
            return values
        begin, end = ("start", "end") if part == "compute" else ("ready", "start")
        spent = ints(self._compute_table, end) - ints(self._compute_table, begin)
        values[~sent] = spent[rows[~sent] - self.messages]
        return values

    def text(self, name: str, rows: Ints) -> tuple[Ints, list[str]]:
        """Return (numbers, texts) of path, src or dst for each of `rows`, only texts that occur."""
        numbers, texts = codes(self._message_table, name)
        if name == "dst":
            others, more = np.zeros(len(self.id) - self.messages, dtype=np.int64), [""]
        else:
            others, more = codes(self._compute_table, "party" if name == "src" else name)
        whole = np.concatenate([numbers, others + len(texts)])[rows]
        used, new = np.unique(whole, return_inverse=True)
        joined = texts + more
        return relabel(new.astype(np.int64), [joined[i] for i in used.tolist()])

    def _both(self, message: str, compute: str) -> Ints:
        return np.concatenate([ints(self._message_table, message), ints(self._compute_table, compute)])


def _parents(events: _Events, inside: Ints) -> list[int]:
    """Return for each event the event that caused it, -1 where that lies outside the phase."""
    order = inside[np.argsort(events.id[inside], kind="stable")]
    sorted_ids = events.id[order]
    place = np.minimum(np.searchsorted(sorted_ids, events.cause), len(order) - 1)
    found = (sorted_ids[place] == events.cause) & (events.cause != NO_CAUSE)
    # A cause is older than its effect, so the walk ends; a trace that says otherwise would never end.
    found &= events.cause < events.id
    parents: list[int] = np.where(found, order[place], -1).tolist()
    return parents


def _walk(parents: list[int], last: int) -> Ints:
    rows = []
    row = last
    while row >= 0:
        rows.append(row)
        row = parents[row]
    return np.array(rows[::-1], dtype=np.int64)
