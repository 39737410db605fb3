"""The shipped predictors on text that neither they nor the models were trained on: cost, recall, precision."""

from __future__ import annotations

import pytest

from comet_sim.comet.measure import Way, measure_ways
from comet_sim.comet.predictor_file import load_predictor
from comet_sim.comet.texts import held_out_windows
from comet_sim.models.demo import DEMO_NAMES, demo_folder, load_demo

WINDOWS = 16


@pytest.fixture(scope="module", params=DEMO_NAMES)
def ways(request: pytest.FixtureRequest) -> dict[str, Way]:
    checkpoint, folder = load_demo(request.param), demo_folder(request.param)
    predictor = load_predictor(folder / "predictor.safetensors", checkpoint)
    found = measure_ways(checkpoint, predictor, held_out_windows(checkpoint, folder, count=WINDOWS))
    assert sum(found[0].tokens.values()) == 2 * WINDOWS * 127
    return {way.name: way for way in found} | {request.param: found[0]}


def change(way: Way, plain: Way, domain: str) -> float:
    return way.perplexity(domain) / plain.perplexity(domain) - 1


def test_neurons_skipped_cost_at_most_one_percent(ways: dict[str, Way]) -> None:
    way, plain = ways["predicted neurons"], ways["plain"]
    for domain in ("prose", "code"):
        assert change(way, plain, domain) <= 0.01
    assert way.agreement > 0.97


def test_recall_and_precision_of_neurons(ways: dict[str, Way]) -> None:
    counts = ways["predicted neurons"].counts("ffn")
    assert counts.recall >= 0.92
    assert counts.precision >= (0.80 if "opt-demo" in ways else 0.70)
    assert counts.density < 0.2
    # The masks do skip: a predictor that says yes to everything has recall 1 and no use.
    for layer in range(4):
        own = ways["predicted neurons"].masks["ffn", layer]
        assert own.recall > 0.85 and own.density < 0.35


def test_looking_ahead_costs_precision_and_keeps_recall() -> None:
    """Before the attention has run there is less to go by; the threshold makes up for it."""
    checkpoint, folder = load_demo(), demo_folder()
    windows = held_out_windows(checkpoint, folder, count=2)
    way = measure_ways(
        checkpoint, load_predictor(folder / "predictor-lookahead.safetensors", checkpoint), windows
    )[2]
    counts = way.counts("ffn")
    assert counts.recall >= 0.92 and 0.6 < counts.precision < 0.9 and counts.density < 0.2


def test_true_neurons_change_nothing(ways: dict[str, Way]) -> None:
    way, plain = ways["true neurons"], ways["plain"]
    assert way.agreement == 1
    for domain in ("prose", "code"):
        assert abs(change(way, plain, domain)) < 1e-9


def test_heads_skipped_too_cost_at_most_four_percent(ways: dict[str, Way]) -> None:
    name = "predicted neurons and heads"
    if name not in ways:
        assert "true heads" not in ways  # heads are predicted wherever skipping them was trained in
        return
    way, plain = ways[name], ways["plain"]
    for domain in ("prose", "code"):
        assert change(way, plain, domain) <= 0.04
    neurons, heads = way.counts("ffn"), way.counts("heads")
    assert neurons.recall >= 0.92 and heads.recall >= 0.92
    assert heads.precision > ways["true heads"].counts("heads").density + 0.1  # better than chance
    assert heads.density < 0.75
