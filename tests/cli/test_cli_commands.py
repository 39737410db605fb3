"""The command line in process: output, exit codes and messages of every command."""

import json
import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import comet_sim.simulation
from comet_sim.cli.app import app
from comet_sim.errors import CometSimError, InputError
from comet_sim.kernel import DeadlockError
from comet_sim.models.demo import demo_folder
from comet_sim.scenario import json_schema, load_scenario

SHORT = ["--set", "workload.prompt_tokens=2", "--set", "workload.output_tokens=2"]


def call(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the folder of one short exact run, and what the command printed."""
    out = tmp_path_factory.mktemp("runs")
    shown = call("run", "demo", *SHORT, "--out", out)
    return out / "demo", shown


def test_run_shows_text_time_traffic_reveals_and_folder(finished):
    folder, shown = finished
    summary = json.loads((folder / "dense-crypten-accurate" / "summary.json").read_text(encoding="utf-8"))
    for part in ("time to first token", "time a token", "set-up", "offline", "online", "server0", "server1"):
        assert part in shown.stdout
    for part in (summary["digest"], str(folder), "norm exponents", "truncation", summary["text"].split()[0]):
        assert part in shown.stdout
    assert "online 2/2" in shown.stderr and "online 2/2" not in shown.stdout
    assert "\x1b" not in shown.output


def test_run_keeps_a_scenario_that_repeats_it(finished, tmp_path):
    folder, _ = finished
    again = json.loads(call("run", folder / "scenario.toml", "--out", tmp_path, "-q", "--json").stdout)
    ours = json.loads((folder / "dense-crypten-accurate" / "summary.json").read_text(encoding="utf-8"))
    assert again["schema"] == 1
    assert again["systems"]["dense-crypten-accurate"]["digest"] == ours["digest"]
    assert Path(again["folder"], "dense-crypten-accurate", "trace").is_dir()


def test_quiet_says_nothing_on_stderr(tmp_path):
    assert call("run", "demo", "--set", "execution=shape", *SHORT, "--out", tmp_path, "-q").stderr == ""


def test_run_one_system_of_several(tmp_path):
    several = ["--set", 'systems=[{name = "dense"}, {name = "crypten-accurate"}]', "--set", "execution=shape"]
    document = json.loads(
        call("run", "demo", *several, *SHORT, "--system", "dense", "--out", tmp_path, "-q", "--json").stdout
    )
    assert list(document["systems"]) == ["dense"]
    assert "did you mean 'dense'" in call("run", "demo", *several, "--system", "dens", code=2).stderr


def test_check_compares_with_transformers(tmp_path):
    shown = call("run", "demo", "--set", "workload.output_tokens=3", "--check", "--out", tmp_path, "-q")
    assert "equal, all 3 tokens" in shown.stdout


def test_check_ends_in_1_where_the_text_differs(tmp_path, monkeypatch):
    monkeypatch.setattr("comet_sim.cli.check.plain_generate", lambda prepared, scenario: [(1, 2)])
    shown = call("run", "demo", *SHORT, "--check", "--out", tmp_path, "-q", code=1)
    assert "output token 0 (from 0) differs" in shown.stdout


def test_check_needs_an_exact_run(tmp_path):
    message = call("run", "demo", "--set", "execution=shape", "--check", "--out", tmp_path, code=2).stderr
    assert "--check" in message and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "networks.rate=1Gbit"], "did you mean 'network'"),
        (["--set", "network.rate=5gbps"], "'5gbps' is ambiguous"),
        (["--set", "network.rate=-5Gbit"], "negative"),
        (["--set", "model=./missing"], "no such folder"),
        (["--set", "model=missing"], "accepted: opt-demo"),
        (["--set", "seed"], "is not key=value"),
    ],
)
def test_bad_settings_end_in_one_line_and_2(tmp_path, arguments, said):
    message = call("run", "demo", *arguments, "--out", tmp_path, code=2).stderr
    assert said in message and message.startswith("error: ") and len(message.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_usage_errors_end_in_2():
    assert "No such option" in call("run", "demo", "--sets", code=2).stderr
    assert "No such command" in call("runs", code=2).stderr


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(demo_folder(), folder)
    return folder


def run_checkpoint(folder, out, code):
    return call("run", "demo", *SHORT[2:], "--set", f"model={folder}", "--out", out, "-q", code=code).stderr


def test_unsupported_architecture(checkpoint, tmp_path):
    config = checkpoint / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace('"opt"', '"mamba"'), encoding="utf-8")
    message = run_checkpoint(checkpoint, tmp_path / "runs", 2)
    assert "model_type" in message and "'mamba'" in message and '"opt" or "gpt2"' in message
    assert not (tmp_path / "runs").exists()


def test_truncated_weights_leave_nothing(checkpoint, tmp_path):
    weights = checkpoint / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    message = run_checkpoint(checkpoint, tmp_path / "runs", 2)
    assert "model.safetensors" in message and len(message.splitlines()) == 1
    assert list((tmp_path / "runs").iterdir()) == []


def test_unwritable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    message = call("run", "demo", "--out", tmp_path / "file", code=2).stderr
    assert "cannot be written" in message and "--out" in message and len(message.splitlines()) == 1


class FaultError(CometSimError):
    exit_code = 4


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeadlockError(5, []), 3),
        (FaultError("server1 crashed"), 4),
        (KeyboardInterrupt(), 130),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_exit_codes_and_what_is_kept(tmp_path, monkeypatch, error, code):
    real = comet_sim.simulation.simulate

    def simulate(scenario, system, *, folder, progress, spectator):
        if system.label == "dense":
            return real(scenario, system, folder=folder, progress=progress)
        (folder / "trace").mkdir()
        raise error

    monkeypatch.setattr("comet_sim.simulation.simulate", simulate)
    both = ["--set", 'systems=[{name = "dense"}, {name = "crypten-accurate"}]', "--set", "execution=shape"]
    shown = call("run", "demo", *both, *SHORT, "--out", tmp_path, "-q", code=code)
    assert shown.stderr.startswith("error: ") and f"kept {tmp_path / 'demo' / 'dense'}" in shown.stderr
    assert "Traceback" not in shown.stderr
    assert sorted(each.name for each in (tmp_path / "demo").iterdir()) == ["dense", "scenario.toml"]


def test_a_bug_keeps_its_traceback(tmp_path, monkeypatch):
    def simulate(*arguments, **named):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("comet_sim.simulation.simulate", simulate)
    message = call("run", "demo", "--out", tmp_path, "-q", code=1).stderr
    assert "Traceback" in message and "bug in comet-sim" in message
    assert message.count("nothing was kept") == 1


def test_an_error_in_a_party_is_one_line_and_2(tmp_path, monkeypatch):
    async def ask(*arguments, **named):
        raise InputError("the prompt is too strange")

    monkeypatch.setattr("comet_sim.roles.user.ask", ask)
    message = call("run", "demo", "--out", tmp_path, "-q", code=2).stderr
    assert message == "error: the prompt is too strange\n"
    assert list(tmp_path.iterdir()) == []


def test_a_prefix_is_never_doubled(tmp_path, monkeypatch):
    def simulate(*arguments, **named):
        raise InputError("error: from below")

    monkeypatch.setattr("comet_sim.simulation.simulate", simulate)
    assert call("run", "demo", "--out", tmp_path, "-q", code=2).stderr == "error: from below\n"
    message = call("run", "demo", "--set", "seed=-1", "--out", tmp_path, code=2).stderr
    assert message == "error: override seed: read -1; accepted: 0 or more\n"


def test_what_a_missing_package_would_cost_is_said_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("comet_sim.cli.check.find_spec", lambda name: None)
    message = call("run", "demo", "--check", "--out", tmp_path, code=2).stderr
    assert "--check needs torch" in message and list(tmp_path.iterdir()) == []


def test_an_interrupted_check_says_that_the_run_is_kept(tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("comet_sim.cli.check.plain_generate", interrupted)
    message = call("run", "demo", *SHORT, "--check", "--out", tmp_path, "-q", code=130).stderr
    kept = tmp_path / "demo" / "dense-crypten-accurate"
    assert message == f"error: interrupted; kept {kept}\n" and (kept / "summary.json").is_file()


def test_a_run_again_is_called_like_the_first(finished, tmp_path):
    again = ["run", finished[0] / "scenario.toml", *SHORT[2:], "--out", tmp_path, "-q"]
    call(*again)
    call(*again)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["demo", "demo-2"]


@pytest.mark.parametrize("command", ["run", "trace", "models", "networks", "schema", "init", None])
def test_every_help_text_lists_the_exit_codes(command):
    text = " ".join(call(*([command] if command else []), "--help").stdout.split())
    for part in ("Exit codes: 0 ok", "1 a comparison failed", "2 usage", "3 deadlock", "130 interrupted"):
        assert part in text


def test_debug_shows_the_traceback_of_an_input_error():
    assert "Traceback" in call("--debug", "run", "nothing-of-that-name", code=2).stderr


def test_trace_views(finished):
    folder, _ = finished
    shown = call("trace", folder, "--verify").stdout
    for part in ("Links", "server0->server1", "Operations", "Revealed", "Dealer", "verified"):
        assert part in shown
    document = json.loads(call("trace", folder, "--rounds", "--token", 1, "--layer", 2, "--json").stdout)
    assert document["rounds"] and all(row["path"].startswith("token1/layer2/") for row in document["rounds"])
    document = json.loads(call("trace", folder, "--links", "--link", "user->server1", "--json").stdout)
    assert {(row["src"], row["dst"]) for row in document["links"]} == {("user", "server1")}
    document = json.loads(
        call("trace", folder, "--top", "--op", "**/relu", "--phase", "online", "--json").stdout
    )
    assert document["operations"] and all("relu" in row["op"] for row in document["operations"])
    summary = json.loads((folder / "dense-crypten-accurate/summary.json").read_text(encoding="utf-8"))
    document = json.loads(call("trace", folder, "--critical-path", "--json", "--limit", 1000).stdout)
    times = sum(row["time_ns"] for row in document["critical_path"])
    assert times == summary["phases"]["online"]["time_ns"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--link", "server0"], "source->destination"),
        (["--link", "server0->server9"], "server9"),
        (["--phase", "onlin"], "online"),
        (["--system", "dense"], "dense-crypten-accurate"),
    ],
)
def test_bad_trace_options(finished, arguments, said):
    assert said in call("trace", finished[0], *arguments, code=2).stderr


def test_bad_traces(finished, tmp_path):
    assert "no such folder" in call("trace", tmp_path / "none", code=2).stderr
    assert "no finished system" in call("trace", tmp_path, code=2).stderr
    copy = tmp_path / "copy"
    shutil.copytree(finished[0], copy)
    file = copy / "dense-crypten-accurate/trace/messages.parquet"
    os.truncate(file, file.stat().st_size - 20)
    message = call("trace", copy, code=2).stderr
    assert str(file) in message and "not a complete Parquet file" in message


def test_models():
    assert "opt-6.7b" in call("models").stdout
    rows = json.loads(call("models", "--json").stdout)["models"]
    assert {"name": "opt-demo", "weights": True}.items() <= rows[0].items()


def test_networks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    lines = [" ".join(line.split()) for line in call("networks").stdout.splitlines()]
    assert "name between servers user dealer owner host transport" in lines
    assert "lan-5g 5Gbit, 0.2ms 100Mbit, 20ms same same 0ms ideal" in lines
    assert "loopback 20Gbit, 0ns same same same 20us ideal" in lines
    rows = json.loads(call("networks", "--json").stdout)["networks"]
    assert {row["name"] for row in rows} >= {"lan-5g", "ideal"}


def test_schema(tmp_path):
    assert json.loads(call("schema").stdout) == json_schema()
    call("schema", "--write", tmp_path / "schema.json")
    assert json.loads((tmp_path / "schema.json").read_text(encoding="utf-8")) == json_schema()


def test_init_writes_a_scenario_that_loads_and_never_overwrites(tmp_path):
    file = tmp_path / "mine.toml"
    call("init", file)
    assert load_scenario(file).workload.output_tokens == 8
    assert "there already" in call("init", file, code=2).stderr


@pytest.mark.parametrize("command", [["init"], ["schema", "--write"]])
def test_a_full_disk_leaves_no_empty_file(tmp_path, monkeypatch, command):
    def full_disk(path, text, encoding):
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    message = call(*command, tmp_path / "file", code=2).stderr
    assert "cannot be written: No space left" in message and len(message.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
