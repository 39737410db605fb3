"""Several prompts under Comet by scenario: each gets its text, and masks of all of them are in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comet_sim.comet.bitmap import load_bitmap
from comet_sim.errors import InputError
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import Result, simulate

PROMPTS = {"prompts": [[5, 300, 41], [900, 7, 7]], "output_tokens": 2}


def _run(
    predictor: dict[str, str],
    workload: dict[str, Any],
    execution: str = "exact",
    folder: Path | None = None,
) -> Result:
    system = {"name": "comet", "suite": "crypten-accurate", "comet": {"predictor": predictor}}
    table = {
        "model": "opt-demo",
        "execution": execution,
        "seed": 1,
        "workload": workload,
        "systems": [system],
    }
    return simulate(scenario_from_dict(table), folder=folder)


def test_masks_of_a_batch_can_be_recorded_and_used_again(tmp_path: Path) -> None:
    first = _run({"source": "oracle"}, PROMPTS, folder=tmp_path)
    file = tmp_path / "masks.npz"
    kept = load_bitmap(file)
    assert (kept.batch, kept.tokens) == (2, 4)
    recorded = {"source": "recorded", "file": str(file)}
    assert _run(recorded, PROMPTS, "shape").trace.digest == first.trace.digest
    with pytest.raises(InputError, match=r"masks are for a batch of 2, .* workload\.batch is 1"):
        _run(recorded, {"prompt_ids": [5, 300, 41], "output_tokens": 2})


def test_a_trained_predictor_serves_a_batch() -> None:
    """Predicted masks of a sequence may differ in borderline bits from those it gets alone; here none does."""
    together = _run({"source": "trained"}, PROMPTS)
    assert isinstance(together.token_ids[0], list) and len(together.token_ids) == 2
    alone = [
        _run({"source": "trained"}, {"prompt_ids": ids, "output_tokens": 2})
        for ids in [[5, 300, 41], [900, 7, 7]]
    ]
    assert together.token_ids == [each.token_ids for each in alone]
    assert together.texts == [each.text for each in alone]
