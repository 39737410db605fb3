"""Two traces side by side, op by op."""

from __future__ import annotations

from typing import NamedTuple

from comet_sim.trace.costs import OpCost, top
from comet_sim.trace.filters import Filter
from comet_sim.trace.store import Trace

__all__ = ["COSTS", "OpDifference", "difference"]

COSTS = ("critical", "messages", "payload", "wire", "rounds", "compute")
"""What is compared of an op: fields of `OpCost`."""


class OpDifference(NamedTuple):
    """Costs of one op in one phase in two runs; None where a run does not have it. Times in ns."""

    phase: str
    op: str
    left: OpCost | None
    right: OpCost | None

    def of(self, cost: str) -> int:
        """Return how much more of a cost the left run has."""
        left, right = (0 if each is None else int(getattr(each, cost)) for each in (self.left, self.right))
        return left - right

    @property
    def equal(self) -> bool:
        """Whether the op costs the same in both."""
        return not any(map(self.of, COSTS))


def difference(
    left: Trace, right: Trace, depth: int | None = None, filters: Filter | None = None
) -> list[OpDifference]:
    """Return the costs by phase and op path in both traces, ops with the largest difference in time first.

    Ops are aligned by their paths, tokens and layers together; `depth` and `filters` are those of `top`.
    """
    sides = [{(row.phase, row.op): row for row in top(each, depth, filters)} for each in (left, right)]
    rows = [
        OpDifference(*key, *(side.get(key) for side in sides))
        for key in dict.fromkeys((*sides[0], *sides[1]))
    ]
    return sorted(rows, key=lambda row: (-abs(row.of("critical")), -abs(row.of("payload")), row[:2]))
