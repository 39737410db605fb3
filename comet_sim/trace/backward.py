"""Slack: how much later an event could have ended without moving the end of its phase."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from comet_sim.trace.columns import Ints, group
from comet_sim.trace.filters import Filter
from comet_sim.trace.order import Edges, line, need_edges
from comet_sim.trace.phase import Mask, PhaseEvents

__all__ = ["OpSlack", "Slack", "slack_of"]

_CHUNK = 1 << 16


class OpSlack(NamedTuple):
    """Slack of the events of one op, tokens and layers together; times in ns."""

    op: str
    events: int
    tight: int
    """Events without slack: on the critical path or on one as long."""
    least: int
    median: int
    most: int


class Slack:
    """Slack of each event of a phase, `values` int64 (events,) in ns."""

    def __init__(self, events: PhaseEvents, values: Ints) -> None:
        self.phase = events.phase
        self.values = values
        self._events = events

    @cached_property
    def table(self) -> pa.Table:
        """One row an event: id, kind (`message` or `compute`), path, src, dst, begin, end and slack, ns."""
        events = self._events
        columns = events.table(np.arange(len(events)))
        columns |= {"begin": pa.array(events.begin), "end": pa.array(events.end)}
        return pa.table(columns | {"slack": pa.array(self.values)})

    def by_op(self, depth: int | None = None, filters: Filter | None = None) -> list[OpSlack]:
        """Return the slack by op path, tokens and layers collapsed, `depth` components; least first."""
        op, ops = self._events.ops(depth)
        values = self.values
        if filters is not None:
            kept = self._events.keep(filters)
            op, values = op[kept], values[kept]
        if not len(values):
            return []
        order = np.lexsort((values, op))
        values = values[order]
        first, inverse = group(op[order])
        counts = np.bincount(inverse)
        tight = np.bincount(inverse, weights=values == 0).astype(np.int64)
        lines = [
            OpSlack(ops[op[order[at]]], count, none, *(int(values[at + i]) for i in (0, (count - 1) // 2, count - 1)))
            for at, count, none in zip(first.tolist(), counts.tolist(), tight.tolist(), strict=True)
        ]  # fmt: skip
        return sorted(lines, key=lambda each: (each.least, each.median, each.op))


def slack_of(events: PhaseEvents, tight: Ints) -> Slack:
    """Return the slack of `events`, of which those at `tight` are known to have none.

    The order on links and devices and the length of each event stay as they were; what had to wait for what is
    described in `comet_sim.trace.order`.
    """
    kinds = list(need_edges(events, line(events)))
    edges = Edges(*(np.concatenate(each) for each in zip(*kinds, strict=True)))
    return Slack(events, _backward(edges, events.finish - events.end, tight))


def _backward(edges: Edges, room: Ints, tight: Ints) -> Ints:
    """Return the least sum of spare time on any way from each event to the phase's end.

    `room` is what the phase's end alone leaves each. Whatever an event needs comes before it, so one pass from
    the last event to the first settles all; ways that meet `tight` events end there, without a pass.
    """
    found = room.copy()
    found[tight] = 0
    known = np.zeros(len(room), dtype=np.bool_)
    known[tight] = True
    edges = _where(edges, ~known[edges.sooner])
    ends = known[edges.later]
    np.minimum.at(found, edges.sooner[ends], edges.spare[ends])
    edges = _where(edges, ~ends)
    order = np.argsort(-edges.later, kind="stable")
    values: list[int] = found.tolist()
    for at in range(0, len(order), _CHUNK):  # whole columns as lists would take half a gigabyte
        rows = order[at : at + _CHUNK]
        columns = (edges.sooner[rows].tolist(), edges.later[rows].tolist(), edges.spare[rows].tolist())
        for sooner, later, spare in zip(*columns, strict=True):
            reached = values[later] + spare
            if reached < values[sooner]:
                values[sooner] = reached
    return np.array(values, dtype=np.int64)


def _where(edges: Edges, kept: Mask) -> Edges:
    return Edges(*(each[kept] for each in edges))
