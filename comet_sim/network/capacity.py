"""What a line can send and when: a constant rate, rates that change, outages, recorded traces.

`serve` takes the moment service starts and returns when the last bit has left and how long outages held it
up. It changes nothing: what a caller must remember between two calls (a rest of a trace's opportunity) is a
credit it hands over and gets back, so that a service cut short can be computed again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol, TypeAlias

from comet_sim.network.config import LinkConfig
from comet_sim.units import SECOND

__all__ = ["NO_CREDIT", "Capacity", "Credit", "OpportunityTrace", "RateSteps", "capacity_of"]

Credit: TypeAlias = tuple[int, int, int]
"""A trace's next opportunity, and bytes left of the one before, usable at the given time only."""

NO_CREDIT: Credit = (0, 0, -1)

_MS = 10**6
_OPPORTUNITY = 1500


class Capacity(Protocol):
    """What a line can send over time."""

    def serve(self, start: int, wire: int, credit: Credit) -> tuple[int, int, Credit]:
        """Return when `wire` bytes begun at `start` have left, the outage in between (ns), the credit left."""


def capacity_of(config: LinkConfig) -> Capacity:
    """Return the capacity of a link as configured."""
    if config.trace:
        return OpportunityTrace(config.trace, config.outages)
    return RateSteps(config.rate, config.rate_steps, config.outages)


class RateSteps:
    """A rate (bit/s, None: unlimited), the steps (time, rate) that change it, and outages (start, end)."""

    __slots__ = ("_rates", "_times")

    def __init__(
        self, rate: int | None, steps: Sequence[tuple[int, int]], outages: Sequence[tuple[int, int]]
    ) -> None:
        levels: list[tuple[int, int | None]] = [(0, rate), *steps]
        starts = [at for at, _ in levels]
        downs = [start for start, _ in outages]

        def level(at: int) -> int | None:
            return levels[bisect_right(starts, at) - 1][1]

        def down(at: int) -> bool:
            index = bisect_right(downs, at) - 1
            return index >= 0 and at < outages[index][1]

        edges = {*starts, *(edge for outage in outages for edge in outage)}
        self._times = sorted(edges)
        self._rates = [0 if down(at) else level(at) for at in self._times]

    def serve(self, start: int, wire: int, credit: Credit) -> tuple[int, int, Credit]:
        """See `Capacity`; times are rounded up to whole ns at the end."""
        times, rates = self._times, self._rates
        index = bisect_right(times, start) - 1
        work = 8 * SECOND * wire
        now, blocked = start, 0
        while True:
            rate = rates[index]
            index += 1
            until = times[index] if index < len(times) else None
            if rate == 0:
                # The last stretch is never an outage: each ends, and there is an edge where it does.
                assert until is not None
                blocked += until - now
                now = until
                continue
            end = now if rate is None else now - (-work // rate)
            if until is None or end <= until:
                return end, blocked, credit
            work -= (rate or 0) * (until - now)
            now = until


class OpportunityTrace:
    """A mahimahi trace: at each of the given ms 1500 bytes may leave; the whole repeats after the last.

    Bytes of an opportunity that nobody waits for are lost, as are opportunities within outages.
    """

    __slots__ = ("_outages", "_period", "_trace", "_ups")

    def __init__(self, trace: Sequence[int], outages: Sequence[tuple[int, int]]) -> None:
        self._trace = trace
        self._period = trace[-1] * _MS
        self._outages = tuple(outages)
        self._ups = [up for _, up in outages]

    def _time(self, index: int) -> int:
        turn, place = divmod(index, len(self._trace))
        return turn * self._period + self._trace[place] * _MS

    def _first(self, at: int) -> int:
        """Return the first opportunity at or after `at`."""
        # The last one of a turn falls on the moment the next turn begins.
        turn = (at - 1) // self._period if at else 0
        return turn * len(self._trace) + bisect_left(self._trace, -(-(at - turn * self._period) // _MS))

    def serve(self, start: int, wire: int, credit: Credit) -> tuple[int, int, Credit]:
        """See `Capacity`; a packet that needs more than is left of an opportunity goes on in the next."""
        following, left, at = credit
        if at != start:
            left = 0
        if wire <= left:
            return start, 0, (following, left - wire, start)
        rest = wire - left
        needed = -(-rest // _OPPORTUNITY)
        index = max(following, self._first(start))
        outages = self._outages[bisect_right(self._ups, start) :] if self._outages else ()
        for down, up in outages:
            before = self._first(down)
            if index + needed <= before:
                break
            needed -= max(0, before - index)
            index = max(index, self._first(up))
        last = index + needed - 1
        end = self._time(last)
        blocked = sum(max(0, min(end, up) - max(start, down)) for down, up in outages)
        return end, blocked, (last + 1, -rest % _OPPORTUNITY, end)
