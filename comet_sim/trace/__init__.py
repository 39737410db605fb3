"""Observers of a run: the recorder, the stored trace and what can be asked of it.

Names load when first used: pyarrow is heavy, and a run that records nothing must not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comet_sim.trace.filters import Filter
    from comet_sim.trace.recorder import Recorder
    from comet_sim.trace.store import Trace

__all__ = ["Filter", "Recorder", "Trace"]

_HOMES = {
    "Filter": "filters",
    "Recorder": "recorder",
    "Trace": "store",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
