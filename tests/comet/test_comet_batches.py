"""Several sequences under Comet: each says what the plain model with its own neurons and heads skipped says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from comet_sim.comet.settings import CometSettings
from comet_sim.roles.dealer import Dealing

ORACLE = CometSettings(source="oracle")
NEURONS = CometSettings(source="oracle", heads=False)


def _prompts(length: int, count: int = 3) -> list[list[int]]:
    return [[(97 * i + 13 * token) % 1900 + 7 for token in range(length)] for i in range(count)]


@pytest.mark.parametrize("length", [1, 2, 17, 64])
@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
def test_a_batch_says_what_the_plain_model_says_with_the_same_skipped(
    comet: Callable[..., Any], model: str, length: int
) -> None:
    run = comet(model, ORACLE, prompts=_prompts(length), output=1 if length == 64 else 2)
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0


def test_neurons_alone(comet: Callable[..., Any]) -> None:
    run = comet("opt-demo", NEURONS, prompts=_prompts(5), output=2)
    assert run.outcome.token_ids == run.expected


SWITCHES: dict[str, dict[str, Any]] = {
    "an order a call": {"columns": "per-call"},
    "an order every token": {"columns": 1},
    "row by row": {"linear": "row-wise", "rows": "none", "policy": "immediate"},
    "fused": {"policy": "fused"},
}


@pytest.mark.parametrize(
    ("model", "switch"),
    [
        *(("opt-demo", switch) for switch in SWITCHES),
        ("reglu-llama-demo", "fused"),
    ],
)
def test_switches_and_shapes(comet: Callable[..., Any], model: str, switch: str) -> None:
    settings = CometSettings(source="oracle", **SWITCHES[switch])
    run = comet(model, settings, prompts=_prompts(3), output=2)
    assert run.outcome.token_ids == run.expected
    shape = comet(model, settings, prompts=_prompts(3), output=2, exact=False)
    assert shape.trace.digest == run.trace.digest


@pytest.mark.parametrize("mode", ["on-demand", "streamed"])
def test_dealer_modes(comet: Callable[..., Any], mode: Any) -> None:
    dealing = Dealing(mode)
    run = comet("opt-demo", ORACLE, prompts=_prompts(2), output=2, dealing=dealing)
    assert run.outcome.token_ids == run.expected
    shape = comet("opt-demo", ORACLE, prompts=_prompts(2), output=2, dealing=dealing, exact=False)
    assert shape.trace.digest == run.trace.digest


def test_sequences_have_holes_of_their_own(comet: Callable[..., Any]) -> None:
    """Hits and misses of a batch are the sums over the runs of its sequences alone."""
    prompts = _prompts(6, 2)
    together = comet("opt-demo", ORACLE, prompts=prompts, output=3).outcome.sparsity.cache
    alone = [comet("opt-demo", ORACLE, prompt=each, output=3).outcome.sparsity.cache for each in prompts]
    assert together.counts.misses == sum(each.counts.misses for each in alone) > 0
    assert together.counts.hits == sum(each.counts.hits for each in alone)
    assert together.kept_bytes == sum(each.kept_bytes for each in alone)
    for layer, own in enumerate(zip(*(each.layers for each in alone), strict=True)):
        for i, single in enumerate(own):
            holes, same = together.layers[layer].holes[i], single.holes[0]
            assert sorted(holes.sum(0)) == sorted(same.sum(0))


def test_a_weight_column_is_sent_once_if_any_sequence_wants_it(comet: Callable[..., Any]) -> None:
    """Bytes of fc1 are 8k (rows + columns) over the rows of all sequences and the union of their columns."""
    run = comet("opt-demo", NEURONS, prompts=_prompts(3), output=1)
    sparsity = run.outcome.sparsity
    messages = run.trace.messages.to_pylist()
    inner = 160
    for work in sparsity.products:
        assert work.shape[0] == 9
        union = next(mask for call, mask in sparsity.masks if call == work.call)
        assert work.columns == int(union.any(0).sum())
        path = f"token0/layer{work.call.layer}/ffn/fc1"
        sent = sum(
            row["payload"]
            for row in messages
            if row["src"] == "server0" and row["dst"] == "server1" and row["path"] == path
        )
        assert sent == 8 * inner * (work.rows + work.columns)
