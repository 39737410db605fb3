"""Whole runs: with the true masks Comet says what the plain model says, for every switch; shapes trace the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from comet_sim.comet.settings import CometSettings
from comet_sim.models.decoder import Layout
from comet_sim.roles.dealer import Dealing

ORACLE = CometSettings(source="oracle")
NEURONS = CometSettings(source="oracle", heads=False)
PROMPTS = {1: (300,), 2: (300, 41), 17: tuple(range(100, 117)), 64: tuple(range(200, 264))}


@pytest.mark.parametrize("length", PROMPTS)
@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
def test_neurons_skipped_by_the_true_mask_change_nothing(
    comet: Callable[..., Any], model: str, length: int
) -> None:
    run = comet(model, NEURONS, prompt=PROMPTS[length], output=2)
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0


@pytest.mark.parametrize("length", PROMPTS)
def test_heads_skipped_give_what_the_plain_model_gives_with_the_same_heads_skipped(
    comet: Callable[..., Any], length: int
) -> None:
    run = comet("opt-demo", ORACLE, prompt=PROMPTS[length], output=3)
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0


SWITCHES = {
    "no order": {"columns": "none"},
    "an order a call": {"columns": "per-call"},
    "an order every 2 tokens": {"columns": 2},
    "rows in order": {"rows": "none"},
    "dense products": {"linear": "dense"},
    "row by row": {"linear": "row-wise"},
    "immediate": {"policy": "immediate"},
    "fused": {"policy": "fused"},
    "no neurons": {"ffn": False},
}


@pytest.mark.parametrize("switch", SWITCHES)
def test_switches_change_the_traffic_and_not_the_text(comet: Callable[..., Any], switch: str) -> None:
    settings = CometSettings(source="oracle", **SWITCHES[switch])
    run = comet("opt-demo", settings, prompt=PROMPTS[17], output=4)
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0
    shape = comet("opt-demo", settings, prompt=PROMPTS[17], output=4, exact=False)
    assert shape.trace.digest == run.trace.digest


@pytest.mark.parametrize("mode", ["on-demand", "streamed"])
def test_dealer_modes(comet: Callable[..., Any], mode: Any) -> None:
    dealing = Dealing(mode)
    run = comet("opt-demo", ORACLE, prompt=PROMPTS[2], output=3, dealing=dealing)
    assert run.outcome.token_ids == run.expected
    shape = comet("opt-demo", ORACLE, prompt=PROMPTS[2], output=3, dealing=dealing, exact=False)
    assert shape.trace.digest == run.trace.digest


@pytest.mark.parametrize("columns", ["per-inference", "per-call", 2])
def test_weights_under_fixed_masks(comet: Callable[..., Any], columns: Any) -> None:
    """A new order is a new version of a weight, with a mask of its own."""
    settings = CometSettings(source="oracle", columns=columns)
    layout = Layout(weights="reuse")
    run = comet("opt-demo", settings, prompt=PROMPTS[2], output=4, layout=layout)
    assert run.outcome.token_ids == run.expected


def test_grouped_simm_by_counts(comet: Callable[..., Any]) -> None:
    settings = CometSettings(source="oracle", simm="counts")
    run = comet("opt-demo", settings, prompt=PROMPTS[2], output=2, dealing=Dealing("on-demand"))
    assert run.outcome.token_ids == run.expected
