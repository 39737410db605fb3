"""Scenario in, result out: runs a system of a scenario and returns text, summary and trace."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comet_sim.baselines import SUITES
from comet_sim.events import Names
from comet_sim.models.checkpoint import load_checkpoint
from comet_sim.models.devices import DEVICES
from comet_sim.models.opt import Layout
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.roles.dealer import Dealing
from comet_sim.roles.plan import Plan
from comet_sim.scenario.prepare import Prepared, prepare
from comet_sim.scenario.schema import DEFAULT_STOCK, Scenario, SystemSpec
from comet_sim.simulation.stage import PARTIES, Inference, Progress, play
from comet_sim.simulation.summary import summarise
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace
from comet_sim.units import parse_size

if TYPE_CHECKING:
    from comet_sim.trace.filters import Filter

__all__ = ["Progress", "Result", "simulate", "simulate_async"]


@dataclass(frozen=True)
class Result:
    """What a run gives back; `summary` is what `summary.json` holds, `trace` every message of the run."""

    system: str
    text: str | None
    token_ids: list[int]
    summary: dict[str, Any]
    trace: Trace
    folder: Path | None

    def select(self, filters: Filter) -> Trace:
        """Return the part of the trace the filter lets through."""
        return self.trace.select(filters)


def simulate(
    scenario: Scenario,
    system: SystemSpec | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run one system of a scenario (default: its first), from sync code or inside a running loop.

    With `folder`, the trace streams to `folder/trace` while the run goes on and appears there when it has
    finished; without, it stays in memory. Raises InputError for settings that cannot be honoured,
    DeadlockError when the parties wait for each other forever.
    """
    if system is None:
        system = scenario.systems[0]
    prepared = prepare(scenario)
    run = _inference(scenario, system, prepared)
    names = Names()
    recorder = Recorder(names, folder / "trace" if folder else None)
    described = _describe(scenario, system, prepared, recorder.version)
    recorder.metadata.update(described)
    try:
        outcome = play(run, names, recorder, progress)
        trace = Trace.of(recorder)
        text = prepared.tokenizer.decode(outcome.token_ids) if run.exact and prepared.tokenizer else None
        summary = {**described, "text": text, **summarise(trace, outcome)}
    except BaseException:
        recorder.abort()
        raise
    return Result(system.label, text, outcome.token_ids, summary, trace, folder)


async def simulate_async(
    scenario: Scenario,
    system: SystemSpec | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run `simulate` in a thread, so that the caller's event loop stays responsive meanwhile."""
    return await asyncio.to_thread(simulate, scenario, system, folder=folder, progress=progress)


def _inference(scenario: Scenario, system: SystemSpec, prepared: Prepared) -> Inference:
    exact = scenario.execution == "exact"
    config = prepared.model.config
    protocol = scenario.protocol
    checkpoint = load_checkpoint(prepared.model.folder) if prepared.model.folder else None
    return Inference(
        config=config,
        plan=Plan(
            prompt_tokens=prepared.prompt.tokens,
            output_tokens=scenario.workload.output_tokens,
            vocab=config.vocab,
            fraction_bits=protocol.fraction_bits,
            reveal=protocol.reveal,
            stop_at_eos=scenario.workload.stop == "eos",
            eos_id=config.eos_id,
        ),
        suite=SUITES[system.suite],
        topology=prepared.network.resolve(PARTIES),
        device=DEVICES[scenario.compute.device],
        seed=scenario.seed,
        layout=Layout(
            qkv=protocol.qkv,
            final_norm=protocol.final_norm,
            weights=protocol.masking.weights,
            cache=protocol.masking.cache,
        ),
        dealing=Dealing(protocol.dealer, parse_size(protocol.dealer_stock or DEFAULT_STOCK) // WORD_BYTES),
        exponents=dict(checkpoint.metadata.norm_scales) if checkpoint else {},
        weights=checkpoint.weights if exact and checkpoint else None,
        prompt=(prepared.prompt.ids or ()) if exact else (),
        audit=protocol.audit,
    )


def _describe(scenario: Scenario, system: SystemSpec, prepared: Prepared, version: str) -> dict[str, Any]:
    return {
        "title": scenario.title,
        "model": scenario.model,
        "parameters": prepared.model.config.parameters,
        "system": system.label,
        "suite": system.suite,
        "execution": scenario.execution,
        "dealer_mode": scenario.protocol.dealer,
        "seed": scenario.seed,
        "prompt": prepared.prompt.text,
        "prompt_tokens": prepared.prompt.tokens,
        "output_tokens": scenario.workload.output_tokens,
        "versions": {
            "comet-sim": version,
            "python": platform.python_version(),
            "numpy": metadata.version("numpy"),
        },
    }
