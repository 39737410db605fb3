"""Whole runs under Comet on the demo models, without the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from comet_sim.baselines import SUITES
from comet_sim.comet.decoder import extra_shapes
from comet_sim.comet.masks import MaskSource, stacked
from comet_sim.comet.plain import SkippingDecoder, by_part, true_masks
from comet_sim.comet.settings import CometSettings
from comet_sim.events import Names
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.checkpoint import Checkpoint, load_checkpoint
from comet_sim.models.devices import DEVICES
from comet_sim.mpc.settings import Truncation
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.simulation.stage import PARTIES, Inference, Outcome, play
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace

PROMPT = (5, 17, 300, 41, 99, 1000, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 1200)


@dataclass(frozen=True)
class Run:
    """A finished run, and what the plain model with the same things skipped says."""

    outcome: Outcome
    trace: Trace
    expected: Any
    """Token ids; of several prompts a list each."""


@cache
def checkpoint(model: str) -> Checkpoint:
    """Load a demo model once."""
    folder = resolve_model(model).folder
    assert folder is not None
    return load_checkpoint(folder)


def oracle(
    model: str, prompt: Sequence[int], count: int, *, heads: bool, suite: str
) -> tuple[list[int], MaskSource]:
    """Return what the plain, skipping model generates and its true masks, by position.

    The model has the functions that the suite puts in place of others.
    """
    loaded = checkpoint(model)
    seen: dict[Any, list[Any]] = {}
    plain = SkippingDecoder(
        loaded.config,
        loaded.weights,
        true_masks if heads else by_part(ffn=true_masks),
        head_thresholds=loaded.metadata.head_thresholds if heads else (),
        observe=lambda ask, mask: seen.setdefault((ask.part, ask.layer), []).append(mask),
        reference=SUITES[suite].reference,
    )
    ids = plain.generate(list(prompt), count)
    masks = {key: np.concatenate(parts) for key, parts in seen.items()}
    return ids, lambda part, layer, start, tokens: masks[part, layer][start : start + tokens]


def run_comet(
    model: str = "opt-demo",
    settings: CometSettings | None = None,
    *,
    prompt: Sequence[int] = PROMPT,
    prompts: Sequence[Sequence[int]] = (),
    output: int = 3,
    exact: bool = True,
    masks: MaskSource | None = None,
    suite: str = "crypten-accurate",
    truncation: Truncation = "local",
    **inference: Any,
) -> Run:
    """Run a demo model under Comet with oracle masks (or the given ones); `prompts` are served together."""
    settings = settings or CometSettings(source="oracle")
    loaded = checkpoint(model)
    prompts = prompts or (prompt,)
    every = [oracle(model, each, output, heads=settings.heads, suite=suite) for each in prompts]
    expected = [ids for ids, _ in every]
    weights = dict(loaded.weights)
    # An oracle's predictor is asked all the same; what it says is not used.
    draws = np.random.default_rng(0)
    for name, shape in extra_shapes(loaded.config, settings).items():
        weights[name] = draws.normal(size=shape) * 0.05
    run = Inference(
        config=loaded.config,
        plan=Plan(len(prompts[0]), output, loaded.config.vocab, batch=len(prompts), truncation=truncation),
        suite=SUITES[suite],
        topology=load_profile("lan-5g").resolve(PARTIES),
        device=DEVICES["cpu"],
        seed=7,
        exponents=dict(loaded.metadata.norm_scales),
        weights=weights if exact else None,
        prompt=[id for each in prompts for id in each] if exact else (),
        comet=settings,
        masks=masks or stacked([true for _, true in every]),
    )
    names = Names()
    recorder = Recorder(names, None)
    outcome = play(replace(run, **inference), names, recorder)
    return Run(outcome, Trace.of(recorder), expected if len(prompts) > 1 else expected[0])


@pytest.fixture
def comet() -> Callable[..., Run]:
    """Run a demo model under Comet."""
    return run_comet
