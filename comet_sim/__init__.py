"""Simulate private LLM inference party by party: real secret-shared arithmetic, exact traffic, emulated links.

    import comet_sim
    result = comet_sim.simulate(comet_sim.load_scenario("demo"))
    print(result.text, result.summary["first_token_ns"], result.trace.messages)

Names are imported when first used, so that `import comet_sim` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comet_sim.errors import CometSimError, InputError
    from comet_sim.network.study import time_messages
    from comet_sim.scenario import Scenario, load_scenario
    from comet_sim.simulation import Result, simulate, simulate_async
    from comet_sim.trace import Filter, Trace

__all__ = [
    "CometSimError",
    "Filter",
    "InputError",
    "Result",
    "Scenario",
    "Trace",
    "load_scenario",
    "simulate",
    "simulate_async",
    "time_messages",
]

_HOMES = {
    "CometSimError": "errors",
    "Filter": "trace",
    "InputError": "errors",
    "Result": "simulation",
    "Scenario": "scenario",
    "Trace": "trace",
    "load_scenario": "scenario",
    "simulate": "simulation",
    "simulate_async": "simulation",
    "time_messages": "network.study",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"comet_sim.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
