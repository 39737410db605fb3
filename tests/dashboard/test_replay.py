"""Replay: a finished trace shows at any moment what a brute count of its rows says, and keys move through it."""

import json

import numpy as np
import pytest
from pseudo_terminal import PseudoTerminal
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.dashboard.replay import ReplayScreen
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate

TABLE = {
    "title": "a shape run",
    "model": "opt-demo",
    "execution": "shape",
    "workload": {"prompt_tokens": 2, "output_tokens": 2},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A result whose folder is as `run` leaves it."""
    folder = tmp_path_factory.mktemp("runs") / "some" / "dense"
    folder.mkdir(parents=True)
    result = simulate(scenario_from_dict(TABLE), folder=folder)
    (folder / "summary.json").write_text(json.dumps(result.summary), encoding="utf-8")
    return result


@pytest.fixture
def screen(run):
    return ReplayScreen("a run", run.trace, run.summary, None, 1.0)


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5, 0.77, 1.0])
def test_any_moment_is_what_the_rows_until_then_say(screen, run, share):
    messages = run.trace.messages
    delivered, created, payload = (messages[name].to_numpy() for name in ("delivered", "created", "payload"))
    screen.go_to(f"{round(delivered[-1] * share)}ns")
    view = screen.view()
    there = delivered <= view.clock
    assert view.tally.count == there.sum() and view.tally.part_bytes.sum() == payload[there].sum()
    under_way = (created <= view.clock) & ~there
    assert sum(link.messages for link in view.links) == under_way.sum()
    assert sum(link.payload for link in view.links) == payload[under_way].sum()
    assert view.tally.part_time.sum() == view.tally.clock == view.clock


def test_the_end_is_the_summary(screen, run):
    screen.key("$")
    view = screen.view()
    assert view.state == "finished" and view.steps == (2, 2)
    phases = run.summary["phases"]
    assert view.tally.rounds.tolist() == [phase["rounds"] for phase in phases.values()]
    assert view.tally.part_count.sum(1).tolist() == [phase["messages"] for phase in phases.values()]
    assert {(line.what, line.elements) for line in view.ledger} == {
        (line["what"], line["elements"]) for line in run.summary["reveals"]
    }


def test_steps_go_forward_and_back_again(screen):
    for kind in "ntos":
        screen.key("0")
        places = [screen.view().tally.count]
        for _ in range(3):
            screen.key(kind)
            places.append(screen.view().tally.count)
        moved = places[: 3 if kind == "t" else 4]  # of two tokens
        assert (np.diff(moved) > 0).all()
        screen.key(kind.upper())
        assert screen.view().tally.count < moved[-1]
        screen.key(kind)
        assert screen.view().tally.count == moved[-1]


def test_going_to_what_is_not_there_says_so_and_stays(screen):
    before = screen.view().clock
    for where in ("token 9", "layer99/ffn", "", "12parsec"):
        screen.go_to(where)
        view = screen.view()
        assert view.message and view.clock == before
    screen.go_to("token1")
    assert "output token 1" in screen.view().now
    screen.go_to("layer3/ffn/relu")
    assert "ReLU" in screen.view().now and "layer 3" in screen.view().now


def test_playing_moves_the_clock_at_its_pace(screen, monkeypatch):
    now = 100.0
    monkeypatch.setattr("comet_sim.dashboard.replay.time.monotonic", lambda: now)
    before = screen.view().clock
    screen.key(" ")
    now += 0.0625
    assert screen.view().clock == before + 62_500_000
    now += 1e6
    assert screen.view().state == "finished"


def test_keys_at_a_terminal(run):
    with PseudoTerminal(("replay", run.folder.parent), 120, 40) as terminal:
        terminal.until("replay some", "PAUSED", "masks.npz")
        terminal.type("glayer2/ffn/relu\r")
        assert "layer 2, output token 0" in terminal.until("compute ReLU")
        terminal.type("gtokenh?\x7f\x1b")
        terminal.type("t")
        terminal.until("output token 1")
        terminal.type("q")
        assert terminal.exit_code() == 0 and terminal.sane()


def test_without_a_terminal_or_a_run_there_is_one_clear_error(run, tmp_path):
    found = CliRunner().invoke(app, ["replay", str(run.folder.parent)])
    assert found.exit_code == 2 and "replay needs a terminal; `comet-sim trace" in found.stderr
    found = CliRunner().invoke(app, ["replay", str(tmp_path / "nothing")])
    assert found.exit_code == 2 and "no such folder" in found.stderr


def test_stops_follow_the_rows(screen, run):
    paths = run.trace.messages["path"].to_pylist()
    stops = screen._stored.stops("token")
    firsts = [paths[row].split("/")[0] for row in stops.tolist()]
    assert {"token0", "token1"} == set(firsts) and (np.diff(stops) > 0).all()
