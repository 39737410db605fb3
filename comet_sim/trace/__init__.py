"""Observers of a run: the recorder, the stored trace and what can be asked of it.

Names load when first used: pyarrow is heavy, and a run that records nothing must not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comet_sim.trace.backward import Slack
    from comet_sim.trace.costs import OpCost, top
    from comet_sim.trace.critical import CriticalPath, critical_path, slack
    from comet_sim.trace.export import round_table
    from comet_sim.trace.filters import Filter, PathPattern, collapse
    from comet_sim.trace.idle import Stalls, stalls
    from comet_sim.trace.query import by_link, by_op, dealer_requests, phase_rounds, reveal_ledger, rounds
    from comet_sim.trace.recorder import Recorder
    from comet_sim.trace.store import Trace

__all__ = [
    "CriticalPath",
    "Filter",
    "OpCost",
    "PathPattern",
    "Recorder",
    "Slack",
    "Stalls",
    "Trace",
    "by_link",
    "by_op",
    "collapse",
    "critical_path",
    "dealer_requests",
    "phase_rounds",
    "reveal_ledger",
    "round_table",
    "rounds",
    "slack",
    "stalls",
    "top",
]

# A module must not be called as one of its names: importing it would hide the name.
_HOMES = {
    "backward": ("Slack",),
    "costs": ("OpCost", "top"),
    "critical": ("CriticalPath", "critical_path", "slack"),
    "export": ("round_table",),
    "filters": ("Filter", "PathPattern", "collapse"),
    "idle": ("Stalls", "stalls"),
    "query": ("by_link", "by_op", "dealer_requests", "phase_rounds", "reveal_ledger", "rounds"),
    "recorder": ("Recorder",),
    "store": ("Trace",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
