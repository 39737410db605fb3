"""Comet by scenario: the summary says what was skipped, masks can be taken up again, shapes trace the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comet_sim.comet.bitmap import load_bitmap
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import Result, simulate

IDS = list(range(300, 317))


def _run(
    comet: dict[str, Any], *, folder: Path | None = None, model: str = "opt-demo", **changes: Any
) -> Result:
    table: dict[str, Any] = {
        "model": model,
        "seed": 3,
        "workload": {"prompt_ids": IDS, "output_tokens": 3},
        "systems": [{"name": "comet", "suite": "crypten-accurate", "comet": comet}],
    }
    return simulate(scenario_from_dict(table | changes), folder=folder)


ORACLE = {"predictor": {"source": "oracle"}}


def test_masks_of_a_run_can_be_recorded_and_used_again(tmp_path: Path) -> None:
    """As shapes, for the same seed, message for message."""
    first = _run(ORACLE, folder=tmp_path)
    file = tmp_path / "masks.npz"
    kept = load_bitmap(file)
    assert kept.tokens == len(IDS) + 2
    recorded = {"predictor": {"source": "recorded", "file": str(file)}}
    again = _run(recorded)
    assert again.token_ids == first.token_ids
    shape = _run(recorded, execution="shape", workload={"prompt_tokens": len(IDS), "output_tokens": 3})
    assert shape.trace.digest == again.trace.digest == first.trace.digest


def test_the_summary_says_what_was_skipped() -> None:
    comet = _run(ORACLE).summary["comet"]
    assert 0.02 < comet["neurons"]["density"] < comet["neurons"]["columns_sent"] < 1
    assert 0.2 < comet["heads"]["density"] < 0.8
    assert len(comet["neurons"]["by_layer"]) == 4
    assert comet["products"]["components_max"] >= 1
    assert comet["cache"]["misses"] > 0
    assert comet["cache"]["kept_input_bytes"] == 8 * 4 * (len(IDS) + 2) * 160


def test_masks_are_those_of_the_plain_model_whatever_order_they_were_opened_in() -> None:
    every = [_run({**ORACLE, "shuffle": {"columns": columns}}) for columns in ("none", "per-inference", 2)]
    for result in every[1:]:
        for (part, layer, mask), (_, _, first) in zip(result.masks, every[0].masks, strict=True):
            assert (mask == first).all(), f"{part} of layer {layer}"


def test_the_ledger_says_what_masks_let_the_servers_link() -> None:
    lines = {line["what"]: line for line in _run(ORACLE).summary["reveals"]}
    assert lines["active neurons"]["audience"] == "server0,server1"
    assert "one order for the inference" in lines["active heads"]["why"]
    counts = _run({**ORACLE, "simm": "counts"}, protocol={"dealer": "on-demand"}).summary["reveals"]
    assert [line["audience"] for line in counts if line["what"] == "number of active neurons"] == ["dealer"]


@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
def test_comet_sends_less_than_the_dense_system(model: str) -> None:
    table = {
        "model": model,
        "workload": {"prompt_ids": IDS, "output_tokens": 3},
        "systems": [{"name": "dense"}, {"name": "comet", "comet": ORACLE}],
    }
    scenario = scenario_from_dict(table)
    dense, comet = (
        simulate(scenario, system).summary["phases"]["online"]["bytes"]["server0"]
        for system in scenario.systems
    )
    assert comet < 0.85 * dense
