"""The `[systems.comet]` table: what it means for a model, and what is refused with which key."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.bitmap import Bitmap, save_bitmap
from comet_sim.errors import InputError
from comet_sim.models.demo import demo_folder
from comet_sim.scenario import scenario_from_dict
from comet_sim.scenario.prepare import prepare
from comet_sim.scenario.skipping import skipping_of
from comet_sim.scenario.toml import dump


def _table(comet: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    system: dict[str, Any] = {"name": "comet"} if comet is None else {"name": "comet", "comet": comet}
    table: dict[str, Any] = {
        "model": "opt-demo",
        "workload": {"prompt_ids": [5, 6, 7], "output_tokens": 2},
        "systems": [system],
    }
    return table | changes


ORACLE = {"predictor": {"source": "oracle"}}


def _skipping(table: dict[str, Any]) -> Any:
    scenario = scenario_from_dict(table)
    prepared = prepare(scenario)
    loaded = prepared.model.load() if scenario.execution == "exact" else None
    return skipping_of(scenario, scenario.systems[0], prepared, loaded)


def test_settings_reach_the_protocol() -> None:
    comet = {
        "predictor": {
            "source": "oracle",
            "rank": 7,
            "rank_heads": 3,
            "delta": -0.5,
            "heads": False,
            "lookahead": True,
        },
        "shuffle": {"columns": 4, "rows": "none"},
        "products": "row-wise",
        "cache": {"policy": "fused", "prefetch": True, "lookahead": True},
    }
    found = _skipping(_table(comet)).settings
    assert (found.rank_ffn, found.rank_heads, found.delta_ffn) == (7, 3, -0.5)
    assert (found.columns, found.rows, found.linear, found.policy) == (4, "none", "row-wise", "fused")
    assert (found.heads, found.prefetch, found.cache_lookahead) == (False, True, True)
    assert found.predictor_lookahead is True and _skipping(_table()).settings.predictor_lookahead is False


@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
def test_heads_are_skipped_where_the_model_was_trained_for_it(model: str) -> None:
    assert _skipping(_table(ORACLE, model=model)).settings.heads is True


def test_noise_and_thresholds_survive_in_a_run_folder() -> None:
    """They are the only numbers with a fraction in a scenario: writing them used to fail."""
    comet = {
        "predictor": {"source": "oracle", "delta": -0.5},
        "privacy": {"neurons": {"epsilon": 0.1}, "heads": {"epsilon": 1, "delta": 1e-9}},
    }
    scenario = scenario_from_dict(_table(comet))
    again = scenario_from_dict(tomllib.loads(dump(scenario)))
    assert again.systems == scenario.systems
    settings = _skipping(_table(comet)).settings
    assert settings.delta_ffn == -0.5
    assert settings.privacy.heads.delta == 1e-9


def test_dense_systems_skip_nothing() -> None:
    assert _skipping(_table(systems=[{"name": "dense"}])) is None


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no such noise": (_table({**ORACLE, "privacy": {"heads": {"epsilon": 99}}}), "epsilon"),
    "no number": (_table({"predictor": {"delta": float("nan")}}), "delta"),
    "unknown key": (_table({"cash": {}}), "systems[0].comet.cash"),
    "unknown policy": (_table({"cache": {"policy": "never"}}), "systems[0].comet.cache.policy"),
    "no tokens": (_table({"shuffle": {"columns": 0}}), "systems[0].comet.shuffle.columns"),
    "not comet": (_table(systems=[{"name": "dense", "comet": {}}]), "only the system 'comet'"),
    "counts": (_table({"simm": "counts"}), "on-demand"),
    "a bad tag": (_table(systems=[{"name": "comet", "tag": "a/b"}]), "systems[0].tag"),
    "twice": (_table(systems=[{"name": "comet"}, {"name": "comet"}]), "there twice"),
    "no file": (_table({"predictor": {"source": "recorded"}}), "predictor.file"),
    "no such file": (_table({"predictor": {"source": "recorded", "file": "no.npz"}}), "no such file"),
    "trained for another input": (
        _table({"predictor": {"lookahead": True, "file": str(demo_folder() / "predictor.safetensors")}}),
        "with --lookahead",
    ),
    "and the other way": (
        _table({"predictor": {"file": str(demo_folder() / "predictor-lookahead.safetensors")}}),
        "without --lookahead",
    ),
    "nothing to look ahead for": (
        _table({"predictor": {"lookahead": True, "neurons": False}}),
        "predictor.lookahead",
    ),
    "shapes only": (_table(model="opt-1.3b", execution="shape"), "accepted: recorded"),
    "no ids": (
        _table(ORACLE, execution="shape", workload={"prompt_tokens": 3, "output_tokens": 2}),
        "token ids",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str) -> None:
    table, said = REFUSED[case]
    with pytest.raises(InputError) as caught:
        _skipping(table)
    text = str(caught.value)
    key = ".".join(str(part) for part in getattr(caught.value, "key", ()))
    assert said in text or said in key


def _recorded(tmp_path: Path, ffn: tuple[int, int, int], **how: Any) -> Any:
    file = tmp_path / "masks.npz"
    save_bitmap(file, Bitmap(np.ones(ffn, bool), None))
    return _skipping(_table({"predictor": {"source": "recorded", "file": str(file)}}, **how))


def test_recorded_masks(tmp_path: Path) -> None:
    found = _recorded(tmp_path, (4, 4, 640))
    assert found.masks("ffn", 3, 1, 3).shape == (3, 640)
    assert not found.settings.heads
    assert _recorded(tmp_path, (24, 4, 8192), model="opt-1.3b", execution="shape",
                     workload={"prompt_tokens": 3, "output_tokens": 2}).masks is not None  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "said"), [((3, 4, 640), "layers"), ((4, 4, 639), "of 640"), ((4, 3, 640), "3 tokens")]
)
def test_recorded_masks_must_fit(tmp_path: Path, shape: tuple[int, int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        _recorded(tmp_path, shape)
