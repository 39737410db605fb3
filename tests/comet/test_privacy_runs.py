"""Whole runs with noise on counts: the text of the true masks or better, the ledger's words, shapes' traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.noise import mechanism
from comet_sim.comet.privacy import noise_bytes
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.roles.dealer import Dealing
from comet_sim.trace.query import by_op, reveal_ledger

PROMPT = tuple(range(100, 117))
WEAK, STRONG = Noise(1.0, 1e-6), Noise(0.01, 1e-6)


def _settings(ffn: Noise | None, heads: Noise | None = None, /, **switches: Any) -> CometSettings:
    return CometSettings(source="oracle", privacy=PrivacySettings(ffn, heads), **switches)


@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
@pytest.mark.parametrize("noise", [WEAK, STRONG])
def test_neurons_under_noise_change_nothing(comet: Callable[..., Any], model: str, noise: Noise) -> None:
    settings = _settings(noise, heads=False)
    run = comet(model, settings, prompt=PROMPT, output=3)
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0


@pytest.mark.parametrize(
    "switches", [{}, {"columns": "per-call"}, {"columns": 2}, {"rows": "none"}, {"policy": "fused"}]
)
def test_shapes_leave_the_same_trace(comet: Callable[..., Any], switches: dict[str, Any]) -> None:
    settings = _settings(WEAK, WEAK, **switches)
    runs = [comet("opt-demo", settings, prompt=PROMPT, output=4, exact=exact) for exact in (True, False)]
    assert runs[0].trace.digest == runs[1].trace.digest


@pytest.mark.parametrize("mode", ["on-demand", "streamed"])
def test_dealer_modes(comet: Callable[..., Any], mode: Any) -> None:
    settings = _settings(WEAK, WEAK)
    how = {"prompt": PROMPT[:2], "output": 3, "dealing": Dealing(mode)}
    runs = [comet("opt-demo", settings, exact=exact, **how) for exact in (True, False)]
    assert runs[0].trace.digest == runs[1].trace.digest


def test_all_heads_under_strong_noise_say_what_the_dense_model_says(comet: Callable[..., Any]) -> None:
    """Eight heads and a noise of hundreds: every head is active, which is the model without skipping."""
    dense = comet("opt-demo", CometSettings(source="oracle", ffn=False, heads=False), prompt=PROMPT, output=4)
    run = comet("opt-demo", _settings(None, STRONG, ffn=False), prompt=PROMPT, output=4)
    assert run.outcome.token_ids == dense.outcome.token_ids
    assert all(mask.all() for _, mask in run.outcome.sparsity.masks)


def test_true_entries_are_never_dropped_and_counts_grow_by_the_noise(comet: Callable[..., Any]) -> None:
    bare = comet("opt-demo", _settings(None, heads=False), prompt=PROMPT, output=4)
    run = comet("opt-demo", _settings(WEAK, heads=False), prompt=PROMPT, output=4)
    extra = []
    masks = zip(bare.outcome.sparsity.masks, run.outcome.sparsity.masks, strict=True)
    for (call, true), (same, mask) in masks:
        assert call == same
        assert (mask | true == mask).all()
        extra += list(mask.sum(1) - true.sum(1))
    # No mask here is so full that it caps the noise: two shifts on the mean.
    shift = mechanism(WEAK).shift
    assert min(extra) >= 0
    assert max(extra) <= 4 * shift
    deviation = np.sqrt(2 * 2 * np.exp(-1) / (1 - np.exp(-1)) ** 2 / len(extra))
    assert abs(np.mean(extra) - 2 * shift) < 4 * deviation


def test_what_it_costs_is_what_the_formula_says(comet: Callable[..., Any]) -> None:
    run = comet("opt-demo", _settings(WEAK, heads=False), prompt=PROMPT, output=3, exact=False)
    spent = sum(
        row.payload for row in by_op(run.trace, 9, between_servers=True) if "/indexing/privacy" in row.op
    )
    masks = [mask.shape for _, mask in run.outcome.sparsity.masks]
    assert spent == 2 * sum(noise_bytes(*shape) for shape in masks)


def test_the_ledger_says_how_exact_counts_are(comet: Callable[..., Any]) -> None:
    run = comet("opt-demo", _settings(STRONG), prompt=PROMPT[:2], output=2, exact=False)
    why = {row.what: row.why for row in reveal_ledger(run.trace) if row.what.startswith("active")}
    assert why["active heads"].endswith("; exact counts")
    for words in ("(0.01, 1e-06)-private for one bit", "it protects counts, not which columns"):
        assert words in why["active neurons"]


def test_only_a_count_is_revealed_by_one_token_in_an_order_of_its_own(comet: Callable[..., Any]) -> None:
    settings = _settings(STRONG, heads=False, columns="per-call")
    run = comet("opt-demo", settings, prompt=PROMPT[:1], output=2, exact=False)
    (why,) = {row.why for row in reveal_ledger(run.trace) if row.what == "active neurons"}
    assert why.startswith(
        "columns in an order of this call: the number of active columns and nothing else; each"
    )
    assert why.endswith("its own half of the noise")


def test_several_sequences_each_with_noise_of_its_own(comet: Callable[..., Any]) -> None:
    prompts = [PROMPT[:5], PROMPT[5:10], PROMPT[10:15]]
    settings = _settings(WEAK, heads=False)
    runs = [comet("opt-demo", settings, prompts=prompts, output=3, exact=exact) for exact in (True, False)]
    assert runs[0].outcome.token_ids == runs[0].expected
    assert runs[0].trace.digest == runs[1].trace.digest
