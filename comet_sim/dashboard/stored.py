"""A finished trace as arrays in the order of delivery, with what seeking in it needs; no run is repeated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from comet_sim.dashboard.parts import part_of, token_of
from comet_sim.dashboard.tally import Depths, History, Ints, Rows, Spans, Tally
from comet_sim.dashboard.view import Moment
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.schema import PHASES
from comet_sim.trace.store import Trace

__all__ = ["Stored"]

_ORDER = ("user", "server0", "server1", "dealer", "owner")
_BLOCK = 1 << 15
_LONG = 2
_TIMES = ("created", "queued", "host", "stall", "serialise", "propagate", "delivered")


class Stored:
    """Messages and local work of a trace; totals are kept every `_BLOCK` messages, so any moment is near."""

    def __init__(self, trace: Trace) -> None:
        messages = trace.messages
        found = trace.parties
        self.parties = tuple(
            sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else 9, name))
        )
        self.times = {name: ints(messages, name) for name in _TIMES}
        self.payload, self.depth = ints(messages, "payload"), ints(messages, "depth")
        self.path, self.texts = codes(messages, "path")
        self.token = np.array([token_of(text) for text in self.texts], np.int64)[self.path]
        part = np.array([part_of(text) for text in self.texts], np.int64)[self.path]
        phase, src, dst = self._phase(messages), self._party(messages, "src"), self._party(messages, "dst")
        self.rows = Rows(
            phase, part, src, dst, self.payload, self._rounds(phase, src, dst),
            *(self.times[name] for name in ("created", "serialise", "propagate", "delivered")),
        )  # fmt: skip
        self.slowest = int((self.rows.delivered - self.rows.created).max(initial=0))
        compute = trace.compute
        order = np.argsort(ints(compute, "start"), kind="stable")
        work = (self._party(compute, "party"), ints(compute, "start"), ints(compute, "end"))
        self.spans = Spans(*(column[order] for column in work))
        self.span_phase = self._phase(compute)[order]
        self._checks = [Tally(self.parties)]
        for low in range(0, len(phase), _BLOCK):
            following = self._checks[-1].copy()
            following.add(self.rows.cut(low, low + _BLOCK))
            self._checks.append(following)
        self.starts = self._starts()
        self._histories: dict[int, tuple[History, History]] = {}

    def __len__(self) -> int:
        return len(self.path)

    def _party(self, table: object, column: str) -> Ints:
        numbers, texts = codes(table, column)
        return np.array([self.parties.index(text) for text in texts], np.int64)[numbers]

    @staticmethod
    def _phase(table: object) -> Ints:
        numbers, texts = codes(table, "phase")
        return np.array([PHASES.index(text) for text in texts], np.int64)[numbers]

    def _rounds(self, phase: Ints, src: Ints, dst: Ints) -> Ints:
        server = np.array([name.startswith("server") for name in self.parties], np.bool_)
        found = np.zeros(len(phase), np.int64)
        for each in np.unique(phase).tolist():
            at = np.flatnonzero(phase == each)
            found[at] = Depths().first(self.depth[at], server[src[at]] & server[dst[at]])
        return found

    def _starts(self) -> list[int]:
        """Return when each phase began: with the last delivery before it."""
        delivered = self.rows.delivered
        rows = np.searchsorted(self.rows.phase, np.arange(len(PHASES))).tolist()
        return [int(delivered[row - 1]) if row else 0 for row in rows]

    def tally(self, count: int, clock: int) -> Tally:
        """Return what the first `count` messages, and the work begun by `clock`, cost."""
        block = count // _BLOCK
        made = self._checks[block].copy()
        made.add(self.rows.cut(block * _BLOCK, count))
        begun = int(np.searchsorted(self.spans.start, clock, "right"))
        spans = Spans(*(column[:begun] for column in self.spans))
        made.add_work(spans._replace(end=np.minimum(spans.end, clock)), self.span_phase[:begun])
        return made

    def histories(self, phase: int) -> tuple[History, History]:
        """Return how busy links and devices were over a phase."""
        if phase not in self._histories:
            n, start = len(self.parties), self.starts[phase]
            links, work = History(n * n, start), History(n, start)
            low, high = np.searchsorted(self.rows.phase, [phase, phase + 1]).tolist()
            rows = self.rows.cut(low, high)
            left = rows.delivered - rows.propagate
            links.add(rows.src * n + rows.dst, left - rows.serialise, left)
            now = self.span_phase == phase
            work.add(*(column[now] for column in self.spans))
            self._histories[phase] = links, work
        return self._histories[phase]

    def under_way(self, count: int, clock: int) -> Ints:
        """Return the messages sent by `clock` and not among the first `count` delivered."""
        last = int(np.searchsorted(self.rows.delivered, clock + self.slowest, "right"))
        found: Ints = count + np.flatnonzero(self.rows.created[count:last] <= clock)
        return found

    def working(self, clock: int) -> NDArray[np.bool_]:
        """Return which parties' devices work at `clock`."""
        begun = int(np.searchsorted(self.spans.start, clock, "right"))
        found = np.zeros(len(self.parties), np.bool_)
        found[self.spans.party[:begun][self.spans.end[:begun] > clock]] = True
        return found

    def moment(self, row: int) -> Moment:
        """Return one message."""
        rows, times = self.rows, {name: int(self.times[name][row]) for name in _TIMES}
        return Moment(
            phase=int(rows.phase[row]), path=self.texts[int(self.path[row])], src=self.parties[int(rows.src[row])],
            dst=self.parties[int(rows.dst[row])], payload=int(self.payload[row]), depth=int(self.depth[row]), **times,
        )  # fmt: skip

    def stops(self, kind: str) -> Ints:
        """Return the messages at which another round, op or token begins, or a stall ends."""
        rows, first = self.rows, np.ones(1, np.bool_)
        phase = rows.phase
        if kind == "stall":
            return self._stalls()
        if kind == "token":
            # What is left of a token is mixed with the start of the next: each begins once.
            tokens, at = np.unique(self.token, return_index=True)
            begins: Ints = at[tokens >= 0]
            return begins
        other = (np.diff(phase) != 0) | (np.diff(self.path) != 0)
        if kind == "round":
            other |= (np.diff(self.depth) != 0) | (self.depth[1:] == 0)
        return np.flatnonzero(np.append(first, other))

    def _stalls(self) -> Ints:
        """Return the messages whose receiver had waited more than twice as long as is usual in the phase."""
        rows, found = self.rows, []
        for phase in np.unique(rows.phase).tolist():
            at, waits = [], []
            for party in range(len(self.parties)):
                here = np.flatnonzero((rows.phase == phase) & (rows.dst == party))
                at.append(here[1:])
                waits.append(np.diff(rows.delivered[here]))
            every, wait = np.concatenate(at), np.concatenate(waits)
            if len(wait):
                found.append(every[wait > _LONG * np.median(wait)])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
