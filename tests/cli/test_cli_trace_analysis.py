"""`comet-sim trace` with --critical-path, --stalls and --top, on a run whose dealer is slow."""

import json

import pytest
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.trace import Trace, critical_path, stalls


def call(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """Return the folder of a run that asks its dealer for each correction, over a slow link."""
    out = tmp_path_factory.mktemp("runs")
    settings = {
        "execution": "shape",
        "workload.prompt_tokens": 2,
        "workload.output_tokens": 2,
        "protocol.dealer": "on-demand",
        "network.dealer": '{rate = "20Mbit", rtt = "10ms"}',
    }
    chosen = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    call("run", "demo", *chosen, "--out", out, "-q")
    return out / "demo"


def document(folder, *options):
    return json.loads(call("trace", folder, *options, "--json", "--limit", 1000).stdout)


def trace_in(folder):
    return Trace.load(next(folder.glob("*/trace")))


def test_a_slow_dealer_shows_as_named_stalls(slow):
    shown = call("trace", slow, "--stalls").stdout
    assert "Stalls" in shown and "Longest single stalls" in shown and "waiting for a message" in shown
    found = document(slow, "--stalls")
    dealer = [row for row in found["stalls"] if (row["waiter"], row["awaited"]) == ("server1", "dealer")]
    assert any("ffn/relu" in row["op"] for row in dealer)
    server1 = next(row for row in found["parties"] if row["party"] == "server1")
    assert sum(row["total_ns"] for row in dealer) > server1["stalled_ns"] / 2
    assert all(sum(row["parts"].values()) == row["total_ns"] for row in found["stalls"])
    online = critical_path(trace_in(slow)).makespan
    for party in found["parties"]:
        assert party["busy_ns"] + party["stalled_ns"] + party["other_ns"] == online


def test_parties_wait_for_nothing_unnamed(slow):
    """Idle time that no message explains would be a cause the run did not record."""
    found = stalls(trace_in(slow))
    end = critical_path(trace_in(slow)).end
    ends = {row["waiter"]: row["end"] for row in found.table.to_pylist()}
    for party in found.parties:
        # What is left lies after the party's last stall.
        assert party.other <= end - ends[party.party]


def test_filters_keep_part_of_a_whole_analysis(slow):
    whole, part = document(slow, "--critical-path"), document(slow, "--critical-path", "--token", 1)
    assert (
        0
        < sum(row["time_ns"] for row in part["critical_path"])
        < sum(row["time_ns"] for row in whole["critical_path"])
    )
    assert sum(row["tight"] for row in whole["slack"]) >= sum(row["steps"] for row in whole["critical_path"])
    found = document(slow, "--stalls", "--op", "**/relu", "--link", "dealer->server1")
    assert found["stalls"] and all("relu" in row["op"] for row in found["stalls"])
    assert {(row["waiter"], row["awaited"]) for row in found["stalls"]} == {("server1", "dealer")}
    assert all(row["path"].split("/")[3] == "relu" for row in found["longest_stalls"])


def test_views_combine(slow):
    found = document(slow, "--top", "--critical-path", "--stalls", "--depth", 2)
    assert {"operations", "critical_path", "slack", "parties", "stalls", "longest_stalls"} <= found.keys()
    online = [row for row in found["operations"] if row["phase"] == "online"]
    assert sum(row["critical_ns"] for row in online) == sum(row["time_ns"] for row in found["critical_path"])
    assert {row["op"] for row in found["critical_path"]} <= {row["op"] for row in online}
    assert max(online, key=lambda row: row["critical_ns"])["compute_ns"] > 0
    shown = call("trace", slow, "--top", "--critical-path", "--limit", 3).stdout
    assert "Slack" in shown and "--limit shows more" in shown


def test_other_phases(slow):
    assert document(slow, "--critical-path", "--phase", "set-up")["critical_path"]
    message = call("trace", slow, "--stalls", "--phase", "offline", code=2).stderr
    assert "nothing happened in phase 'offline'" in message
