"""All events of one phase as arrays in an order in which whatever an event waits for comes before it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE
from comet_sim.trace.columns import Ints, codes, ints, relabel
from comet_sim.trace.filters import Filter, collapse_all
from comet_sim.trace.schema import phase_name
from comet_sim.trace.store import Trace

__all__ = ["COLUMNS", "PhaseEvents", "dictionary", "inside", "refuse_empty"]

Mask = npt.NDArray[np.bool_]

_MESSAGE_PARTS = {
    "link_queue": "queued",
    "host": "host",
    "stall": "stall",
    "serialise": "serialise",
    "propagate": "propagate",
}


COLUMNS = {
    "messages": (
        "id",
        "phase",
        "path",
        "src",
        "dst",
        "cause",
        "created",
        *_MESSAGE_PARTS.values(),
        "delivered",
    ),
    "compute": ("id", "phase", "path", "party", "cause", "ready", "start", "end"),
}
"""Columns that events are made of, by table."""


class PhaseEvents:
    """Messages and spans of local work of one phase, in the order of `release`, then of their ids.

    `messages` and `compute` have the columns `COLUMNS`; `where` names the trace when something is wrong. All
    arrays are int64 (events,); times in ns. Raises `InputError` when an event begins before its cause ended.
    """

    def __init__(self, messages: pa.Table, compute: pa.Table, phase: str, where: str) -> None:
        self.phase = phase
        self._ops: dict[int | None, tuple[Ints, list[str]]] = {}
        self._tables = (messages, compute)
        self._rows = tuple(inside(table, phase) for table in self._tables)
        sent = len(self._rows[0])
        end = self._both("delivered", "end")
        release = end.copy()
        release[:sent] -= self._both("propagate", None)[:sent]
        id = self._both("id", "id")
        # Rows come nearly in this order already; numpy's stable sort makes use of that.
        order = np.argsort(id, kind="stable")
        self._order = order = order[np.argsort(release[order], kind="stable")]
        self.id: Ints = id[order]
        self.end: Ints = end[order]
        self.release: Ints = release[order]
        """When the next in line may go on: a message has left its link, a span its device."""
        self.is_message: Mask = order < sent
        self.begin: Ints = self._both("created", "ready")[order]
        self.wait: Ints = self._waits()
        """How long a message waited for its link, or a span for its device."""
        self.start = int(self.begin.min())
        """Virtual time the phase's first event began."""
        self.finish = int(self.end.max())
        """Virtual time its last event ended."""
        self.cause_id: Ints = self._both("cause", "cause")[order]
        """Id of the event that caused each, `NO_CAUSE` where none did."""
        self.cause: Ints = self._causes(where)
        """Position of the event that caused each, -1 where it is not among these."""

    @classmethod
    def of(cls, trace: Trace, phase: str) -> PhaseEvents:
        """Return all events of a phase; raises `InputError` when it is unknown or has none."""
        phase = phase_name(phase)
        messages, compute = (
            trace.read(name, columns, range(trace.block_count(name))) for name, columns in COLUMNS.items()
        )
        refuse_empty(trace, phase, bool(inside(messages, phase).size or inside(compute, phase).size))
        return cls(messages, compute, phase, trace.where)

    def __len__(self) -> int:
        return len(self.id)

    @cached_property
    def path(self) -> tuple[Ints, list[str]]:
        """Op path of each event: (numbers, texts)."""
        return self._text("path", "path")

    @cached_property
    def src(self) -> tuple[Ints, list[str]]:
        """Sender of each message and party of each span: (numbers, texts)."""
        return self._text("src", "party")

    @cached_property
    def dst(self) -> tuple[Ints, list[str]]:
        """Receiver of each message, numbered as `src` numbers parties; empty for a span."""
        known = {text: i for i, text in enumerate(self.src[1])}
        numbers, texts = self._text("dst", None)
        places = [known.setdefault(text, len(known)) for text in texts]
        return np.array(places, dtype=np.int64)[numbers], list(known)

    def ops(self, depth: int | None) -> tuple[Ints, list[str]]:
        """Return the op path of each event collapsed to `depth` components: (numbers, sorted texts)."""
        if depth not in self._ops:
            numbers, texts = self.path
            self._ops[depth] = relabel(numbers, collapse_all(texts, depth))
        return self._ops[depth]

    def part(self, part: str) -> Ints:
        """Return the time each event spent on one of `critical.PARTS` but `gap`."""
        if part in _MESSAGE_PARTS:
            return self._both(_MESSAGE_PARTS[part], None)[self._order]
        if part == "device_queue":
            return np.where(self.is_message, 0, self.wait)
        return np.where(self.is_message, 0, self.end - self.begin - self.wait)

    def keep(self, filters: Filter) -> Mask:
        """Return which events `filters` lets through; its phase is not looked at."""
        kept = np.ones(len(self), dtype=np.bool_)
        numbers, texts = self.path
        for pattern in filters.patterns():
            kept &= np.array(pattern.matches(texts), dtype=np.bool_)[numbers]
        if filters.link is not None:
            kept &= self.is_message
            for (numbers, texts), party in zip((self.src, self.dst), filters.link, strict=True):
                kept &= np.array([text == party for text in texts], dtype=np.bool_)[numbers]
        return kept

    def table(self, rows: Ints) -> dict[str, pa.Array]:
        """Return columns of `rows`: id, kind (`message` or `compute`), path, src and dst."""
        return {
            "id": pa.array(self.id[rows]),
            "kind": dictionary((~self.is_message[rows]).astype(np.int64), ["message", "compute"]),
            "path": dictionary(self.path[0][rows], self.path[1]),
            "src": dictionary(self.src[0][rows], self.src[1]),
            "dst": dictionary(self.dst[0][rows], self.dst[1]),
        }

    def _both(self, message: str, compute: str | None) -> Ints:
        """Return a column of messages, then one of spans (zeros when None), both as recorded."""
        (messages, spans), (sent, done) = self._tables, self._rows
        more = np.zeros(len(done), dtype=np.int64) if compute is None else ints(spans, compute)[done]
        return np.concatenate([ints(messages, message)[sent], more])

    def _text(self, message: str, compute: str | None) -> tuple[Ints, list[str]]:
        (messages, spans), (sent, done) = self._tables, self._rows
        numbers, texts = codes(messages, message)
        others, more = (
            (np.zeros(len(spans), dtype=np.int64), [""]) if compute is None else codes(spans, compute)
        )
        known = {text: i for i, text in enumerate(texts)}
        places = np.array([known.setdefault(text, len(known)) for text in more], dtype=np.int64)
        joined = np.concatenate([numbers[sent], places[others[done]]])[self._order]
        # Only texts of this phase: a run has an op path for each token and layer.
        used = np.flatnonzero(np.bincount(joined, minlength=len(known)))
        new = np.zeros(len(known), dtype=np.int64)
        new[used] = np.arange(len(used))
        labels = list(known)
        return new[joined], [labels[i] for i in used.tolist()]

    def _waits(self) -> Ints:
        waits = self._both("queued", "start")[self._order]
        return np.where(self.is_message, waits, waits - self.begin)

    def _causes(self, where: str) -> Ints:
        cause = self.cause_id
        by_id = np.argsort(self.id, kind="stable")
        place = np.searchsorted(self.id, cause, sorter=by_id)
        parent = by_id[np.minimum(place, len(by_id) - 1)]
        # A cause is older than its effect; a trace that says otherwise would be walked forever.
        found = (self.id[parent] == cause) & (cause != NO_CAUSE) & (cause < self.id)
        early = found & (self.begin < self.end[parent])
        if early.any():
            bad = int(np.argmax(early))
            raise InputError(
                f"{where}: event {self.id[bad]} begins at {self.begin[bad]} ns, "
                f"before its cause {cause[bad]} ended"
            )
        return np.where(found, parent, -1)


def refuse_empty(trace: Trace, phase: str, found: bool) -> None:
    """Raise `InputError` unless events of `phase` were found in `trace`."""
    if not found:
        raise InputError(f"{trace.where}: nothing happened in phase {phase!r}, so there is nothing to follow")


def inside(table: pa.Table, phase: str) -> Ints:
    """Return which rows of `table` are of `phase`."""
    numbers, texts = codes(table, "phase")
    return np.flatnonzero(np.array([text == phase for text in texts], dtype=np.bool_)[numbers])


def dictionary(numbers: Ints, texts: Sequence[str]) -> pa.DictionaryArray:
    """Return texts by number (rows,) as an Arrow column."""
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(texts, pa.string()))
