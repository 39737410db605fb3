"""`devices`, `calibrate` and devices of single parties, as a user calls them."""

import json
import tomllib

from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.cli.devices import Measured
from comet_sim.models.measure_device import Step
from comet_sim.scenario import load_scenario
from comet_sim.simulation import simulate

SHAPE = {"execution": "shape", "workload.prompt_tokens": 2, "workload.output_tokens": 1}


def call(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


def test_devices_are_listed_with_their_sources():
    shown = call("devices").stdout
    assert "a100-crypten" in shown and "data sheet" in shown
    rows = json.loads(call("devices", "--json").stdout)["devices"]
    assert {"none", "cpu", "a100"} <= {row["name"] for row in rows}


def test_calibrate_writes_a_file_that_runs_and_counts_for_one_party(tmp_path, monkeypatch):
    from comet_sim.actors import DeviceProfile

    measured = Measured(
        DeviceProfile("slow", 10**8, 10**9, 10_000, "here"), (Step("a step", 10, 80, 11_000),)
    )
    monkeypatch.setattr("comet_sim.cli.devices.measure_device", lambda *_: measured)
    file = tmp_path / "slow.toml"
    shown = call("calibrate", "-o", file).stdout
    assert "a step" in shown and "slow.toml" in shown.replace("\n", "")
    assert tomllib.loads(file.read_text("utf-8"))["ring_multiply_adds_per_second"] == 10**8
    ways = {}
    for compute in ({}, {"compute.server1": str(file)}, {"compute.device": str(file)}):
        result = simulate(load_scenario("demo", {**SHAPE, **compute}))
        assert result.summary["device_figures"]["slow" if compute else "cpu"]
        ways[len(ways)] = result.summary["phases"]["online"]["time_ns"]
    assert ways[0] < ways[1] <= ways[2]


def test_calibrate_refuses_what_it_cannot_write_before_it_measures(tmp_path):
    assert "ends in .toml" in call("calibrate", "-o", tmp_path / "x.txt", code=2).stderr
    assert "no such folder" in call("calibrate", "-o", tmp_path / "no" / "x.toml", code=2).stderr


def test_a_device_file_beside_a_scenario_is_found_from_anywhere(tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text(
        "ring_multiply_adds_per_second = 1\nmemory_bytes_per_second = 0\nlaunch_ns = 0\n", "utf-8"
    )
    (tmp_path / "s.toml").write_text(
        'model = "opt-demo"\nexecution = "shape"\n[workload]\nprompt_tokens = 2\n[compute]\nuser = "mine.toml"\n',
        "utf-8",
    )
    monkeypatch.chdir("/")
    assert load_scenario(tmp_path / "s.toml").compute.user == str(tmp_path / "mine.toml")
    (tmp_path / "mine.toml").unlink()
    assert "cannot be read" in call("run", tmp_path / "s.toml", code=2).stderr
