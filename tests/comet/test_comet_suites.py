"""Every suite under Comet: right text on active entries alone, and shapes that trace as values do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from comet_sim.baselines import SUITES
from comet_sim.comet.settings import CometSettings
from comet_sim.models.demo import heldout
from comet_sim.roles.dealer import Dealing
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate

SETTINGS = CometSettings(source="oracle")


@pytest.mark.parametrize("suite", [name for name in SUITES if name != "crypten-accurate"])
def test_a_suite_serves_comet(comet: Callable[..., Any], suite: str) -> None:
    """Its text is that of the plain model with the same things skipped (and the same functions replaced)."""
    prompt = tuple(map(int, heldout().prose[0, :6]))  # within the range of every suite's scores
    exact = comet("opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite)
    shape = comet("opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite, exact=False)
    assert exact.outcome.token_ids == exact.expected
    assert shape.trace.digest == exact.trace.digest
    dense = comet(
        "opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite, exact=False, comet=None, masks=None
    )
    for op in ("ffn/relu", "attention/softmax"):
        sent = [_bytes(run, op) for run in (shape, dense)]
        assert 0 < sent[0] < sent[1], f"{op}: entries that were skipped were worked on"


CASES: dict[str, dict[str, Any]] = {
    "opt": {},
    "llama": {"model": "reglu-llama-demo", "prompt": tuple(map(int, heldout().prose[0, :6]))},
    "a batch": {"prompts": ((300, 41, 99), (5, 6, 7))},
    "fused refills": {"settings": CometSettings(source="oracle", policy="fused")},
    "immediate refills": {"settings": CometSettings(source="oracle", policy="immediate")},
    "on demand": {"dealing": Dealing("on-demand")},
    "quadratics": {"suite": "secformer", "prompt": tuple(map(int, heldout().prose[0, :6]))},
}


@pytest.mark.parametrize("case", CASES)
def test_interactive_truncation_takes_active_entries_alone(comet: Callable[..., Any], case: str) -> None:
    """The text stays, shapes trace as values do, nothing wraps; fewer numbers are rescaled than in a dense run."""
    more = {"prompt": (300, 41, 99, 1000), "output": 2, "truncation": "interactive", **CASES[case]}
    exact = comet(**more)
    assert exact.outcome.token_ids == exact.expected
    assert exact.outcome.auditor.wraps == 0
    if case == "on demand":
        return
    shape = comet(**more, exact=False)
    assert shape.trace.digest == exact.trace.digest
    if case != "opt":
        return
    local = comet(**more | {"truncation": "local"}, exact=False)
    dense = [
        comet(**more | {"truncation": way}, exact=False, comet=None, masks=None)
        for way in ("interactive", "local")
    ]
    extra = [_bytes(one, "layer0/ffn") - _bytes(two, "layer0/ffn") for one, two in ((shape, local), dense)]
    assert 0 < extra[0] < extra[1]


def test_puma_s_native_protocols_serve_comet() -> None:
    """A suite that brings interactive truncation brings it under Comet, too."""
    made = scenario_from_dict(
        {
            "model": "opt-demo",
            "execution": "exact",
            "workload": {"prompt_tokens": 4, "output_tokens": 2},
            "protocol": {"fraction_bits": 18},
            "systems": [
                {"name": "comet", "suite": "puma", "variants": {"native": True}},
                {"name": "comet", "suite": "puma"},
            ],
        }
    )
    native, shared = (simulate(made, system) for system in made.systems)
    assert native.token_ids == shared.token_ids
    assert native.summary["truncation_mode"] == "interactive"
    assert native.summary["truncation"]["wraps"] == 0


def _bytes(run: Any, op: str) -> int:
    rows = run.trace.messages.select(["path", "payload", "phase"]).to_pylist()
    return sum(row["payload"] for row in rows if op in str(row["path"]) and row["phase"] == "online")
