"""`comet-sim train-predictor` and `accuracy` in process."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.comet.predictor_file import load_predictor
from comet_sim.models.demo import demo_folder, load_demo

TEXT = Path(argparse.__file__)


def call(*arguments: Any, code: int = 0) -> Any:
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    file = tmp_path_factory.mktemp("predictor") / "mine.safetensors"
    small = ("--windows", 64, "--rank", 8, "--rank-heads", 4)
    return file, call("train-predictor", "opt-demo", "--text", TEXT, *small, "--out", file)


def test_training_writes_the_file_and_tells_what_it_reached(trained: tuple[Path, Any]) -> None:
    file, shown = trained
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert shown.stdout == ""
    for part in ("training on", "tokens to choose thresholds on", "neurons: recall 0.9", f"wrote {file}"):
        assert part in shown.stderr


def test_training_again_gives_the_same_file(trained: tuple[Path, Any], tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    small = ("--windows", 64, "--rank", 8, "--rank-heads", 4)
    call("train-predictor", "opt-demo", "--text", TEXT, *small, "--out", again)
    assert again.read_bytes() == trained[0].read_bytes()


def test_looking_ahead_goes_into_the_file(tmp_path: Path) -> None:
    file = tmp_path / "ahead.safetensors"
    small = ("--windows", 20, "--rank", 4, "--rank-heads", 2)
    call("train-predictor", "opt-demo", "--text", TEXT, *small, "--lookahead", "--out", file)
    assert load_predictor(file, load_demo()).lookahead


def test_accuracy_prints_a_row_for_each_way_of_running(trained: tuple[Path, Any]) -> None:
    shown = call("accuracy", "opt-demo", "--windows", 1, "--predictor", trained[0]).stdout
    for part in ("plain", "true neurons", "predicted neurons", "true heads", "predicted neurons and heads"):
        assert part in shown
    for part in ("127 tokens of prose and 127 tokens of code", "perplexity code", "same top 1", "rank 8"):
        assert part in shown


def test_accuracy_as_json_and_other_thresholds(trained: tuple[Path, Any]) -> None:
    short = ("accuracy", "opt-demo", "--windows", 1, "--predictor", trained[0], "--json")
    usual = json.loads(call(*short).stdout)
    assert usual["schema"] == 1 and usual["tokens"] == {"prose": 127, "code": 127}
    assert usual["predictor"]["checkpoint"] == load_demo().digest
    rows = {row["way"]: row for row in usual["ways"]}
    assert rows["plain"]["change"] == {"prose": 0, "code": 0} and rows["plain"]["top1_agreement"] == 1
    assert set(rows["predicted neurons and heads"]["heads"]) == {"density", "recall", "precision"}
    for delta, density in (("-1000", 1), ("1000", 0)):
        other = json.loads(call(*short, "--delta-ffn", delta, "--delta-heads", delta).stdout)
        assert other["delta"] == {"ffn": float(delta), "heads": float(delta)}
        row = {row["way"]: row for row in other["ways"]}["predicted neurons and heads"]
        assert row["ffn"]["density"] == row["heads"]["density"] == density
        assert row["ffn"]["recall"] == density
        assert (row["top1_agreement"] == 1) == bool(density)


def test_accuracy_on_a_text_of_ones_own(trained: tuple[Path, Any]) -> None:
    arguments = ("--windows", 2, "--predictor", trained[0], "--text", TEXT, "--json")
    assert json.loads(call("accuracy", "opt-demo", *arguments).stdout)["tokens"] == {"code": 254}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train-predictor", "opt-6.7b"), "model opt-6.7b: only its shapes are known"),
        (("train-predictor", "opt-demo", "--text", "none.txt", "--out", "p"), "none.txt: not readable"),
        (("train-predictor", "opt-demo", "--out", "no/such/folder/p"), "cannot be written"),
        (("train-predictor", "opt-demo", "--out", "."), "is a folder, expected a file"),
        (("train-predictor", "opt-demo", "--rank", "0"), "--rank"),
        (("accuracy", "opt-demo", "--predictor", "none"), "none: no such file; make it with"),
        (("accuracy", "opt-demo", "--windows", "0"), "--windows"),
        (("accuracy", "missing"), "model 'missing': not known"),
    ],
)
def test_bad_arguments_end_in_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = call(*arguments, code=2)
    assert said in shown.stderr and list(tmp_path.iterdir()) == []


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(demo_folder(), folder)
    return folder


def test_the_file_goes_beside_a_checkpoint_and_is_found_there(checkpoint: Path) -> None:
    (checkpoint / "predictor.safetensors").unlink(missing_ok=True)
    assert "train-predictor" in call("accuracy", checkpoint, code=2).stderr
    call("train-predictor", checkpoint, "--text", TEXT, "--windows", 32, "--rank", 4)
    assert json.loads(call("accuracy", checkpoint, "--windows", 1, "--json").stdout)["model"] == "model"


def test_a_predictor_of_other_weights_is_refused(checkpoint: Path, trained: tuple[Path, Any]) -> None:
    shutil.copy(trained[0], checkpoint / "predictor.safetensors")
    config = checkpoint / "config.json"
    config.write_text(config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    message = call("accuracy", checkpoint, code=2).stderr
    assert "trained for the checkpoint with digest" in message and "train it again" in message


def test_models_without_relu_and_without_heads(checkpoint: Path, tmp_path: Path) -> None:
    metadata = checkpoint / "comet_sim.json"
    stored = json.loads(metadata.read_text(encoding="utf-8"))
    del stored["head_thresholds"]
    metadata.write_text(json.dumps(stored), encoding="utf-8")
    file = tmp_path / "p.safetensors"
    call("train-predictor", checkpoint, "--text", TEXT, "--windows", 32, "--rank", 4, "--out", file)
    shown = call("accuracy", checkpoint, "--windows", 1, "--predictor", file).stdout
    assert "heads" not in shown
    message = call("accuracy", checkpoint, "--predictor", file, "--delta-heads", 0, code=2).stderr
    assert "--delta-heads: the predictor of model has no heads" in message
    config = checkpoint / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"relu"', '"gelu"'), encoding="utf-8")
    message = call("train-predictor", checkpoint, "--text", TEXT, "--out", tmp_path / "q", code=2).stderr
    assert "activation gelu" in message and not (tmp_path / "q").exists()


def test_an_interrupted_training_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("comet_sim.comet.training._Fit.step", stop)
    arguments = ("--text", TEXT, "--windows", 20, "--out", tmp_path / "p.safetensors")
    call("train-predictor", "opt-demo", *arguments, code=130)
    assert list(tmp_path.iterdir()) == []
