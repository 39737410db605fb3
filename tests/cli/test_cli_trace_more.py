"""`comet-sim trace` with --diff and --export: what is shown, what is refused."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from comet_sim.cli.app import app


def call(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in a token, each of one system."""
    folder = tmp_path_factory.mktemp("runs")
    short = ("--set", "execution=shape", "--set", "workload.prompt_tokens=4", "--out", folder, "-q")
    for tokens in (1, 2):
        call("run", "demo", *short, "--set", f"workload.output_tokens={tokens}")
    return sorted(folder.iterdir())


def test_a_difference_adds_up(runs):
    found = json.loads(call("trace", runs[1], "--diff", runs[0], "--json").stdout)
    assert not found["equal"]
    for row in found["operations"]:
        this, other = (row[side] or dict.fromkeys(row["difference"], 0) for side in ("this", "other"))
        assert row["difference"] == {cost: this[cost] - other[cost] for cost in this}
    totals = {
        run.name: sum(
            row["payload"] for row in json.loads(call("trace", run, "--links", "--json").stdout)["links"]
        )
        for run in runs
    }
    assert sum(row["difference"]["payload"] for row in found["operations"]) == (
        totals[runs[1].name] - totals[runs[0].name]
    )
    shown = call("trace", runs[1], "--diff", runs[0]).stdout
    assert "operations differ" in shown and "minus" in shown


def test_a_run_equals_itself(runs):
    assert "equal, record by record" in call("trace", runs[0], "--diff", runs[0]).stdout


def test_exports_and_what_is_refused(runs, tmp_path):
    file = tmp_path / "trace.json"
    shown = call("trace", runs[0], "--export", "chrome", "-o", file, "--phase", "online")
    assert shown.stdout.startswith(f"{file}: ") and json.loads(file.read_text())["traceEvents"]
    assert "did you mean 'perfetto'" in call("trace", runs[0], "--export", "perfeto", code=2).stderr
    assert "choose --export" in call("trace", runs[0], "--out", file, code=2).stderr
    assert (
        "no"
        in call("trace", runs[0], "--export", "chrome", "-o", tmp_path / "b", "--op", "nosuch", code=2).stderr
    )
    assert not (tmp_path / "b").exists()
