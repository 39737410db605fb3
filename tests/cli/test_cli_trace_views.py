"""What `comet-sim trace` says when it is given something else than a run, or a filter that keeps nothing."""

import json
import os
import re
import shutil

import pytest
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.trace import Filter, Trace
from comet_sim.trace.hints import describe, why_nothing


def call(*arguments, code=0, width=120):
    found = CliRunner().invoke(
        app, [str(each) for each in arguments], prog_name="comet-sim", env={"COLUMNS": str(width)}
    )
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run as shapes, two tokens of the demo model."""
    out = tmp_path_factory.mktemp("runs")
    settings = {"execution": "shape", "workload.prompt_tokens": 2, "workload.output_tokens": 2}
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    call("run", "demo", *chosen, "--out", out, "-q")
    return out / "demo"


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (("--op", "**/rellu"), "no rows match op='**/rellu'; did you mean op='**/relu'?"),
        (("--op", "relu"), "no rows match op='relu'; did you mean op='**/relu'?"),
        (("--op", "token0/layer1/attn"), "did you mean"),
        (("--op", "zzzz"), "no rows match op='zzzz'; op='zzzz' is in no op path"),
        (("--token", 9), "no rows match token=9; the run has tokens 0 to 1"),
        (("--token", 0, "--layer", 7), "no rows match token=0, layer=7; the run has layers 0 to 3"),
        (("--link", "owner->user"), "nothing at all has link='owner->user'"),
        (("--link", "user->server1", "--phase", "offline"), "phase='offline'; without phase there are some"),
        (("--op", "weights", "--phase", "online"), "no rows match op='weights', phase='online'; without"),
    ],
)
def test_a_filter_that_keeps_nothing_says_so_in_a_line(run, filters, said):
    lines = call("trace", run, *filters).stdout.splitlines()
    assert len(lines) == 2 and said in lines[0] and lines[1].startswith("digest ")
    document = json.loads(call("trace", run, *filters, "--json").stdout)
    assert said in document["nothing"] and document["links"] == []


def test_a_suggested_pattern_keeps_something(run):
    suggested = re.search(r"op='([^']+)'\?", call("trace", run, "--op", "token0/layer1/atention").stdout)[1]
    assert "Operations" in call("trace", run, "--op", suggested).stdout


def test_tables_that_a_filter_says_nothing_about_are_left_out(run):
    shown = call("trace", run, "--link", "server0->server1").stdout
    assert "Links" in shown and "Operations" in shown
    assert "Revealed" not in shown and "Dealer" not in shown and "  compute" not in shown
    assert "--link leaves them out" in call("trace", run, "--link", "server0->server1", "--reveals").stdout
    assert "Parties" in call("trace", run, "--stalls", "--phase", "online").stdout
    assert "Parties" not in call("trace", run, "--stalls", "--op", "**/relu").stdout


def test_both_spellings_of_the_first_phase(run):
    one, other = (
        json.loads(call("trace", run, "--phase", name, "--json").stdout) for name in ("set-up", "setup")
    )
    assert one == other and one["links"] and {row["phase"] for row in one["links"]} == {"set-up"}
    message = call("trace", run, "--phase", "warm-up", code=2).stderr
    assert "phase 'warm-up': accepted are set-up, offline, online" in message


def test_summary_and_trace_agree_on_names_and_rounds(run):
    summary = json.loads(next(run.glob("*/summary.json")).read_text(encoding="utf-8"))
    document = json.loads(call("trace", run, "--top", "--links", "--critical-path", "--json").stdout)
    assert {row["phase"] for row in document["links"]} <= set(summary["phases"])
    for name, phase in summary["phases"].items():
        # Nothing runs side by side in a dense model, so the rounds of its ops add up to those of the phase.
        assert phase["rounds"] == sum(row["rounds"] for row in document["operations"] if row["phase"] == name)
    assert summary["phases"]["set-up"]["rounds"] == 0 < summary["phases"]["online"]["rounds"]
    assert set(document["critical_path"][0]["parts"]) == set(summary["parts"])


@pytest.mark.parametrize("width", [60, 120])
def test_no_number_is_cut(run, width):
    for view in ("--top", "--critical-path", "--stalls", "--links", "--rounds", "--reveals"):
        shown = call("trace", run, view, "--token", 1, width=width).stdout
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        for number in re.findall(
            r"[\d.,]+ (?:ms|us|ns|kB|MB)", call("trace", run, view, "--token", 1).stdout
        ):
            assert number in re.sub(r"\s+", " ", shown), (view, number)


def test_what_is_no_run_is_named(run, tmp_path):
    system = next(run.glob("*/trace")).parent
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    (tmp_path / "mine.toml").write_text("x", encoding="utf-8")
    for given, said in [
        (tmp_path / "none" / "run", "no such folder"),
        (run.with_name("dmo"), f"did you mean {str(run)!r}?"),
        (run.parent, f"a folder of runs; give one of them: {run}"),
        (tmp_path, "a folder, but no finished system with a trace in it; give the folder a run was kept in"),
        (tmp_path / "notes.txt", "a file; give the folder a run was kept in"),
        (tmp_path / "mine.toml", "a scenario, not a run: `comet-sim run"),
        (run / "scenario.toml", f"give its folder, {str(run)!r}"),
        (
            system / "trace" / "compute.parquet",
            f"one file of a trace; give its folder, {str(system / 'trace')!r}",
        ),
    ]:
        message = call("trace", given, code=2).stderr
        assert f"trace of {str(given)!r}: " in message and said in message
    for folder in (system, system / "trace", f"{run}/"):
        assert "Links" in call("trace", folder).stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "neither folder nor file" in call("trace", tmp_path / "pipe", code=2).stderr


def test_damage_shows_without_verify(run, tmp_path):
    """What broke: a flipped byte read back as other numbers unless --verify was given."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    file = next(copy.glob("*/trace")) / "messages.parquet"
    whole = bytearray(file.read_bytes())
    whole[400] ^= 1
    file.write_bytes(whole)
    message = call("trace", copy, "--links", "--top", "--rounds", code=2).stderr
    assert "messages.parquet: damaged" in message
    shown = call("trace", run).stdout
    assert "not verified: --verify recomputes it" in shown
    assert ", verified" in call("trace", run, "--verify").stdout


def test_hints_from_python(run):
    trace = Trace.load(next(run.glob("*/trace")))
    assert (
        describe(Filter(path="a", link=("user", "server1"), token=2))
        == "op='a', link='user->server1', token=2"
    )
    assert why_nothing(trace, Filter(token=5)) == "no rows match token=5; the run has tokens 0 to 1"


def test_run_says_what_is_there_instead_of_a_scenario(run, tmp_path):
    message = call("run", run, code=2).stderr
    assert f"a folder; the scenario it was run from is {str(run / 'scenario.toml')!r}" in message
    assert "a folder; a scenario is a TOML file" in call("run", tmp_path, code=2).stderr
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert "neither file nor folder" in call("run", tmp_path / "pipe", code=2).stderr


def test_parts_are_called_the_same_on_both_screens(run, tmp_path):
    shown = call(
        "run",
        "demo",
        "--set",
        "execution=shape",
        "--set",
        "workload.output_tokens=1",
        "-q",
        "--out",
        tmp_path,
    ).stdout
    header = next(
        line
        for line in call("trace", run, "--critical-path").stdout.splitlines()
        if line.startswith("operation")
    )
    for part in ("compute", "serialise", "propagate"):
        assert part in header
        assert re.search(rf"^{part}\b", shown, re.M)
