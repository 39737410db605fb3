"""Run folders: what stays after success, failure and interrupt."""

import json
import tomllib

import pytest

from comet_sim.errors import InputError
from comet_sim.scenario import RunFolder, prepare, scenario_from_dict, write_summary


@pytest.fixture
def scenario():
    return scenario_from_dict({"model": "opt-demo", "workload": {"prompt_tokens": 4}})


def test_names_are_the_next_free_ones(tmp_path, scenario):
    names = [RunFolder.create(tmp_path / "runs", "demo", scenario).path.name for _ in range(3)]
    assert names == ["demo", "demo-2", "demo-3"]
    assert (
        tomllib.loads((tmp_path / "runs/demo/scenario.toml").read_text(encoding="utf-8"))["model"]
        == "opt-demo"
    )


def test_a_system_appears_when_it_has_finished(tmp_path, scenario):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with folder.system("dense") as partial:
        write_summary(partial, {"text": "é"})
        assert not (folder.path / "dense").exists()
    folder.close()
    assert json.loads((folder.path / "dense/summary.json").read_text(encoding="utf-8")) == {"text": "é"}
    assert sorted(each.name for each in folder.path.iterdir()) == ["dense", "scenario.toml"]
    assert folder.kept() == f"kept {folder.path / 'dense'}"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_the_unfinished_system_is_removed_and_the_finished_stays(tmp_path, scenario, error):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with folder.system("dense"):
        pass
    with pytest.raises(error), folder.system("other") as partial:
        (partial / "trace").mkdir()
        raise error
    folder.close()
    assert sorted(each.name for each in folder.path.iterdir()) == ["dense", "scenario.toml"]


def test_nothing_stays_if_no_system_has_finished(tmp_path, scenario):
    folder = RunFolder.create(tmp_path, "demo", scenario)
    with pytest.raises(ValueError), folder.system("dense"):
        raise ValueError
    folder.close()
    assert list(tmp_path.iterdir()) == [] and folder.kept() == "nothing was kept"


def test_unwritable_place(tmp_path, scenario):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written: .*--out"):
        RunFolder.create(tmp_path / "file", "demo", scenario)


def test_a_summary_that_cannot_be_written_leaves_no_part_of_it(tmp_path):
    with pytest.raises(TypeError):
        write_summary(tmp_path, {"bad": object()})
    assert list(tmp_path.iterdir()) == []


def test_prompts(scenario):
    window = prepare(scenario).prompt
    assert window.tokens == 4 and window.ids is not None and len(window.ids) == 4
    by_id = scenario_from_dict({"model": "opt-demo", "workload": {"prompt_ids": list(window.ids)}})
    assert prepare(by_id).prompt == window
    shape = scenario_from_dict({"model": "opt-6.7b", "execution": "shape", "workload": {"prompt_tokens": 9}})
    assert prepare(shape).prompt.ids is None and prepare(shape).prompt.tokens == 9
