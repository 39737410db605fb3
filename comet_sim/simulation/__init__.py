"""Scenario in, result out: runs a system of a scenario and returns text, summary and trace."""

from __future__ import annotations

import asyncio
import platform
import reprlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comet_sim.comet.bitmap import Bitmap, save_bitmap
from comet_sim.comet.indexing import Part
from comet_sim.events import Names, Observer
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.devices import load_device
from comet_sim.roles.dealer import Dealing
from comet_sim.scenario.prepare import Prepared, prepare
from comet_sim.scenario.program import layout_of, plan_of, stock_of, suite_of
from comet_sim.scenario.schema import Scenario, SystemSpec
from comet_sim.scenario.skipping import Skipping, skipping_of
from comet_sim.simulation.caveats import warnings_of
from comet_sim.simulation.scene import Scene, Spectator
from comet_sim.simulation.sparsity import describe_sparsity
from comet_sim.simulation.stage import PARTIES, Inference, Progress, TokenIds, play
from comet_sim.simulation.summary import summarise
from comet_sim.simulation.used import device_facts, network_facts
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace
from comet_sim.units import format_duration

MASKS_FILE = "masks.npz"
"""In a run folder: the masks an exact run under Comet opened, for runs with recorded masks."""

Masks = tuple[tuple[Part, int, "NDArray[np.bool_]"], ...]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from comet_sim.trace.filters import Filter

__all__ = ["Progress", "Result", "Scene", "Spectator", "simulate", "simulate_async"]


@dataclass(frozen=True, repr=False)
class Result:
    """What a run gives back; `summary` is what `summary.json` holds, `trace` every message of the run.

    Of several prompts served together `token_ids` holds a list each, and `texts` the text of each; `text` is None.
    """

    system: str
    text: str | None
    token_ids: TokenIds
    summary: dict[str, Any]
    trace: Trace
    folder: Path | None
    masks: Masks = ()
    """Under Comet, the masks that were opened, by part and layer, in the model's own order; rows of a sequence are
    side by side."""
    texts: list[str] | None = None

    def __repr__(self) -> str:
        online = self.summary["phases"]["online"]
        said = "" if self.text is None else f"text {reprlib.repr(self.text)}, "
        if self.texts is not None:
            said = f"{len(self.texts)} texts, "
        return (
            f"<Result of {self.system}: {said}"
            f"online {format_duration(online['time_ns'])}, {online['rounds']:,} rounds, "
            f"digest {self.summary['digest']}>"
        )

    def select(self, filters: Filter) -> Trace:
        """Return the part of the trace the filter lets through."""
        return self.trace.select(filters)


def simulate(
    scenario: Scenario,
    system: SystemSpec | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    spectator: Spectator | None = None,
) -> Result:
    """Run one system of a scenario (default: its first), from sync code or inside a running loop.

    With `folder`, the trace streams to `folder/trace` while the run goes on and appears there when it has
    finished; without, it stays in memory. A `spectator` sees the run as it is played and changes
    nothing in it. Raises InputError for settings that cannot be honoured,
    DeadlockError when the parties wait for each other forever.
    """
    if system is None:
        system = scenario.systems[0]
    prepared = prepare(scenario)
    checkpoint = _checkpoint(scenario, prepared)
    skipping = skipping_of(scenario, system, prepared, checkpoint)
    run = _inference(scenario, system, prepared, checkpoint, skipping)
    names = Names()
    recorder = Recorder(names, folder / "trace" if folder else None)
    described = _describe(scenario, system, prepared, run, recorder.version)
    recorder.metadata.update(described)
    try:
        observer: Observer = recorder
        if spectator is not None:
            decode = prepared.tokenizer.decode if run.exact and prepared.tokenizer else None
            observer = spectator.begin(described, decode, recorder)
        outcome = play(run, names, observer, progress, spectator)
        trace = Trace.of(recorder)
        every = (
            [prepared.tokenizer.decode(ids) for ids in outcome.sequences]
            if run.exact and prepared.tokenizer
            else None
        )
        text, texts = _one_or_several(every, run.plan.batch)
        summary = {
            **described,
            "text": text,
            "texts": texts,
            "warnings": [
                *(checkpoint.warnings if checkpoint else ()),
                *warnings_of(run.plan.fraction_bits, outcome.auditor),
            ],
            **summarise(trace, outcome),
            "comet": describe_sparsity(run.comet, outcome.sparsity)
            if run.comet and outcome.sparsity
            else None,
        }
    except BaseException:
        recorder.abort()
        raise
    masks = tuple(outcome.opened)
    if folder is not None and run.exact and masks:
        save_bitmap(folder / MASKS_FILE, Bitmap.of_calls(masks, run.plan.batch))
    return Result(system.label, text, outcome.token_ids, summary, trace, folder, masks, texts)


def _one_or_several(texts: list[Any] | None, batch: int) -> tuple[Any, list[Any] | None]:
    """Return what there is of a single sequence, and what there is of several: None for the other."""
    if texts is None:
        return None, None
    return (texts[0], None) if batch == 1 else (None, texts)


async def simulate_async(
    scenario: Scenario,
    system: SystemSpec | None = None,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run `simulate` in a thread, so that the caller's event loop stays responsive meanwhile."""
    return await asyncio.to_thread(simulate, scenario, system, folder=folder, progress=progress)


def _checkpoint(scenario: Scenario, prepared: Prepared) -> Checkpoint | None:
    """Load the weights, which only an exact run needs."""
    if scenario.execution != "exact":
        return None
    checkpoint = prepared.model.load()
    checkpoint.check_range(scenario.protocol.fraction_bits)
    return checkpoint


def _inference(
    scenario: Scenario,
    system: SystemSpec,
    prepared: Prepared,
    checkpoint: Checkpoint | None,
    skipping: Skipping | None,
) -> Inference:
    config = prepared.model.config
    protocol = scenario.protocol
    return Inference(
        config=config,
        plan=plan_of(scenario, config, prepared.prompt.tokens, system),
        suite=suite_of(system),
        topology=prepared.network.resolve(PARTIES),
        device=load_device(scenario.compute.device),
        devices={party: load_device(scenario.compute.of(party)) for party in PARTIES},
        seed=scenario.seed,
        layout=layout_of(scenario),
        dealing=Dealing(protocol.dealer, stock_of(protocol)),
        exponents=dict(prepared.model.metadata().norm_scales),
        weights={**checkpoint.weights, **(skipping.weights if skipping else {})} if checkpoint else None,
        comet=skipping.settings if skipping else None,
        masks=skipping.masks if skipping else None,
        prompt=[id for prompt in prepared.prompts for id in prompt.ids or ()] if checkpoint else (),
        audit=protocol.audit,
    )


def _describe(
    scenario: Scenario, system: SystemSpec, prepared: Prepared, run: Inference, version: str
) -> dict[str, Any]:
    prompt, prompts = _one_or_several([prompt.text for prompt in prepared.prompts], run.plan.batch)
    return {
        "title": scenario.title,
        "model": scenario.model,
        "parameters": prepared.model.config.parameters,
        "system": system.label,
        "suite": system.suite,
        "variants": system.variants.given(),
        "execution": scenario.execution,
        "truncation_mode": run.plan.truncation,
        "dealer_mode": scenario.protocol.dealer,
        "seed": scenario.seed,
        "batch": run.plan.batch,
        "prompt": prompt,
        "prompts": prompts,
        "prompt_tokens": prepared.prompt.tokens,
        "output_tokens": scenario.workload.output_tokens,
        "network": network_facts(scenario.network.profile, run.topology),
        **device_facts(run.device, run.devices),
        "versions": {
            "comet-sim": version,
            "python": platform.python_version(),
            "numpy": metadata.version("numpy"),
        },
    }
