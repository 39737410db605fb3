"""Several prompts on the screen and in `--json`: each has its panel, its text and its comparison."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from comet_sim.cli.app import app

SEVERAL = [
    *("run", "demo", "--set", 'workload.prompts=["In the beginning", [5, 300, 41, 7, 8]]'),
    *("--set", "workload.output_tokens=1", "--quiet"),
]


def _call(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, [*SEVERAL, *arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found.stdout


def test_each_prompt_is_shown_and_checked(tmp_path: Path) -> None:
    shown = _call("--check", "--out", str(tmp_path))
    assert "1 of 2: 5 tokens in, 1 token out" in shown and "2 of 2: 5 tokens in, 1 token out" in shown
    assert "In the beginning" in shown
    for i in range(2):
        assert f"check dense-crypten-accurate[{i}]: equal, all 1 tokens" in shown
    assert "prompts = [" in (tmp_path / "demo" / "scenario.toml").read_text(encoding="utf-8")


def test_json_says_them_by_position(tmp_path: Path) -> None:
    document = json.loads(_call("--json", "--out", str(tmp_path)))
    (summary,) = document["systems"].values()
    assert (summary["schema"], summary["batch"], summary["text"], summary["prompt"]) == (2, 2, None, None)
    assert summary["prompts"][0] == "In the beginning"
    assert [len(ids) for ids in summary["token_ids"]] == [1, 1] and len(summary["texts"]) == 2


def test_shapes_have_no_text(tmp_path: Path) -> None:
    shown = _call("--set", "execution=shape", "--out", str(tmp_path))
    assert "2 prompts, each 5 tokens in, 1 token out; shapes only" in shown
