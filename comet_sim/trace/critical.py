"""The critical path of a phase: the chain of events that decided when it ended, and where its time went."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from comet_sim.trace.backward import Slack, slack_of
from comet_sim.trace.columns import Ints, group, relabel, sums
from comet_sim.trace.filters import Filter, collapse_all
from comet_sim.trace.phase import Mask
from comet_sim.trace.schema import phase_name
from comet_sim.trace.store import Trace
from comet_sim.trace.walk import PARTS, Segment, walk
from comet_sim.trace.windows import Windows

__all__ = ["PARTS", "CriticalPath", "OpShare", "critical_path", "slack"]

_WINDOW = 1 << 19


@dataclass(frozen=True, slots=True)
class OpShare:
    """Time on the critical path spent in one op, ns by part."""

    op: str
    steps: int
    total: int
    parts: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Shares:
    """Steps of one segment added up by op path, sender and receiver; int64 (groups,)."""

    paths: pa.StringArray
    path: Ints
    src: list[str]
    dst: list[str]
    steps: Ints
    parts: dict[str, Ints]

    def kept(self, filters: Filter, texts: list[str]) -> Mask:
        keep = np.ones(len(self.path), dtype=np.bool_)
        for pattern in filters.patterns():
            keep &= np.array(pattern.matches(texts), dtype=np.bool_)[self.path]
        if filters.link is not None:
            keep &= np.array(
                [link == filters.link for link in zip(self.src, self.dst, strict=True)], np.bool_
            )
        return keep


class CriticalPath:
    """Steps of a critical path in the order of time; `parts` add up to `makespan` exactly."""

    def __init__(self, trace: Trace, phase: str, window: int | None) -> None:
        self.phase = phase
        self._windows = windows = Windows(trace, phase)
        self.start: int = windows.start
        """Virtual time the phase's first event began, ns."""
        self.end: int = windows.finish
        """Virtual time its last event ended, ns."""
        self._window = window
        self._whole: Segment | None = None
        self._shares = []
        for segment in walk(windows, window):
            self._shares.append(_shares(segment))
            if segment.whole and segment.before < 0 and len(self._shares) == 1:
                self._whole = segment
            del segment  # else two windows are in memory at once

    @property
    def makespan(self) -> int:
        """Duration of the phase, ns."""
        return self.end - self.start

    @cached_property
    def steps(self) -> pa.Table:
        """One row a step: id, kind, path, src, dst, held_by, begin, end, and the parts in ns.

        `kind` is `message` or `compute`; work of a party has that party as `src` and an empty `dst`. `held_by`
        says what the step before is to it: its `cause`, or the event before it on the `link` or `device`.
        `begin` and `end` are the step's time on the path; its `gap` lies before its `begin`.
        """
        segments = [self._whole] if self._whole else walk(self._windows, self._window)
        tables = [segment.table() for segment in segments]
        return pa.concat_tables(tables[::-1]).unify_dictionaries().combine_chunks()

    @cached_property
    def parts(self) -> dict[str, int]:
        """Time by part, ns, all of `PARTS`."""
        return {part: sum(int(each.parts[part].sum()) for each in self._shares) for part in PARTS}

    @cached_property
    def slack(self) -> Slack:
        """How much later each event of the phase could have ended without moving `end`; 0 for all steps.

        Takes all events of the phase into memory, about 400 bytes each.
        """
        whole = self._whole or next(walk(self._windows, None))
        return slack_of(whole.events, whole.rows)

    def by_op(self, depth: int | None = None, filters: Filter | None = None) -> list[OpShare]:
        """Return the time by op path, tokens and layers collapsed, `depth` components; longest first.

        With `filters`, only of the steps they keep.
        """
        steps: dict[str, int] = {}
        parts: dict[str, dict[str, int]] = {}
        for each in self._shares:
            texts: list[str] = each.paths.to_pylist()
            numbers, ops = relabel(each.path, collapse_all(texts, depth))
            keep = each.kept(filters, texts) if filters is not None else np.ones(len(numbers), dtype=np.bool_)
            counted = sums(numbers[keep], len(ops), each.steps[keep]).tolist()
            times = {part: sums(numbers[keep], len(ops), values[keep]) for part, values in each.parts.items()}
            for i, op in enumerate(ops):
                if counted[i]:
                    steps[op] = steps.get(op, 0) + counted[i]
                    known = parts.setdefault(op, dict.fromkeys(PARTS, 0))
                    for part, values in times.items():
                        known[part] += int(values[i])
        shares = [OpShare(op, count, sum(parts[op].values()), parts[op]) for op, count in steps.items()]
        return sorted(shares, key=lambda share: (-share.total, share.op))

    def time_with(self, party: str) -> int:
        """Return the time on the path spent on work of `party` and on messages to and from it, ns."""
        total = 0
        for each in self._shares:
            mine = np.array([party in link for link in zip(each.src, each.dst, strict=True)], np.bool_)
            total += sum(int(values[mine].sum()) for values in each.parts.values())
        return total


def critical_path(trace: Trace, phase: str = "online", *, window: int | None = _WINDOW) -> CriticalPath:
    """Walk back from the last event of `phase` (latest end, then highest id) along what held each event up.

    That is the event before it on its link or device when it waited for exactly that one, else its cause. The
    phase lasts from the begin of its first event; causes outside it end the walk. About `window` events are in
    memory at once (all when None); the path does not depend on it. Raises `InputError` when the phase has no
    events or an event begins before its cause ended.
    """
    return CriticalPath(trace, phase_name(phase), window)


def slack(trace: Trace, phase: str = "online") -> Slack:
    """Return how much later each event of `phase` could have ended without moving the phase's end.

    Raises `InputError` as `critical_path` does.
    """
    return critical_path(trace, phase, window=None).slack


def _shares(segment: Segment) -> _Shares:
    events, rows = segment.events, segment.rows
    path, src, dst = (each[0][rows] for each in (events.path, events.src, events.dst))
    first, inverse = group(path, src, dst)
    count = len(first)
    used, numbers = np.unique(path[first], return_inverse=True)
    texts = [events.path[1][i] for i in used.tolist()]
    return _Shares(
        pa.array(texts, pa.string()),
        numbers.astype(np.int64),
        [events.src[1][i] for i in src[first].tolist()],
        [events.dst[1][i] for i in dst[first].tolist()],
        sums(inverse, count),
        {part: sums(inverse, count, values) for part, values in segment.values().items()},
    )
