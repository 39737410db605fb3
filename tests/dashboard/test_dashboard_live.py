"""Counting and holding up a run changes nothing in it, and counts what its trace says."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.dashboard.canvas import ASCII, UNICODE, clean, plain_text
from comet_sim.dashboard.feed import Feed
from comet_sim.dashboard.layout import draw
from comet_sim.dashboard.parts import PARTS, part_of, say
from comet_sim.dashboard.tally import History, spread
from comet_sim.dashboard.terminal import keys_of
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate
from comet_sim.trace.query import by_link, phase_rounds

TABLE = {
    "title": "a shape run",
    "model": "opt-demo",
    "execution": "shape",
    "workload": {"prompt_tokens": 2, "output_tokens": 2},
}


@pytest.fixture(scope="module")
def alone():
    return simulate(scenario_from_dict(TABLE))


@pytest.fixture(scope="module")
def watched():
    """A run that a feed has seen, looked at every now and then, and what came out."""
    feed = Feed("a run", None)
    seen = []

    def look(stage, done, total, virtual_ns):
        seen.append(feed.view())

    result = simulate(scenario_from_dict(TABLE), progress=look, spectator=feed)
    feed.finished = True
    return feed, result, seen


def test_a_watched_run_leaves_the_same_trace(alone, watched):
    assert watched[1].trace.digest == alone.trace.digest


def test_what_is_counted_is_what_the_trace_says(watched):
    """Frames in between take records away in parts: none may be lost or counted twice."""
    feed, result, seen = watched
    tally = feed.view().tally
    assert len(seen) > 4 and tally.count == len(result.trace.messages)
    names = list(tally.parties)
    for row in by_link(result.trace):
        phase = list(phase_rounds(result.trace)).index(row.phase)
        at = phase, names.index(row.src), names.index(row.dst)
        assert tally.link_bytes[at] == row.payload and tally.link_count[at] == row.messages
    assert tally.rounds.tolist() == list(phase_rounds(result.trace).values())
    assert tally.part_time.sum() == tally.clock == result.trace.messages["delivered"][-1].as_py()
    compute = result.trace.compute
    assert tally.work.sum() == (compute["end"].to_numpy() - compute["start"].to_numpy()).sum()


def test_nothing_is_under_way_when_a_run_has_ended(watched):
    assert {link.messages for link in watched[0].view().links} == {0}


def test_a_stepped_run_leaves_the_same_trace(alone):
    """Each way to step, from another thread, until the run is over."""
    feed = Feed("a run", None, paused=True)
    held = dict.fromkeys(("round", "op", "token", "stall"), 0)
    over = threading.Event()

    def turn():
        while not over.is_set():
            kind = min(held, key=lambda each: held[each] + 1_000_000 * (held[each] >= 20))
            if all(count >= 20 for count in held.values()) or held["token"] > 3:
                feed.gate.open()
                return
            if feed.gate.paused and feed.started:
                held[kind] += 1
                feed.gate.step(kind)
            time.sleep(0.0005)

    thread = threading.Thread(target=turn)
    thread.start()
    result = simulate(scenario_from_dict(TABLE), spectator=feed)
    over.set()
    thread.join()
    assert result.trace.digest == alone.trace.digest
    assert sum(held.values()) > 4


def test_pace_holds_virtual_time_back():
    """At half the speed of virtual time a run of 0.4 s takes at least 0.8 s, and slower keys would show."""
    feed = Feed("a run", 2.0)
    began = time.monotonic()
    table = {**TABLE, "workload": {"prompt_tokens": 1, "output_tokens": 1}}
    result = simulate(scenario_from_dict(table), spectator=feed)
    whole = result.trace.messages["delivered"][-1].as_py() / 1e9
    assert time.monotonic() - began >= whole / 2.0 - 0.05


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500), st.integers(0, 300)), max_size=12),
    st.integers(1, 70),
)
@settings(max_examples=40, deadline=None)
def test_spans_fall_into_steps_exactly(spans, width):
    """A span over many steps fills each of them, and nothing is lost at the edges."""
    which, begin, length = (np.array([each[i] for each in spans], np.int64) for i in range(3))
    found = spread(which, begin, begin + length, width, (3, 900))
    expected = np.zeros_like(found)
    for thing, start, size in spans:
        for ns in range(start, start + size):
            expected[thing, ns // width] += 1
    assert (found == expected).all()


def test_history_doubles_its_steps_and_keeps_the_sum():
    history = History(1, origin=100, width=10)
    for start in range(100, 40_000, 500):
        history.add(np.zeros(1, np.int64), np.array([start]), np.array([start + 250]))
    assert history.busy.sum() == 80 * 250
    levels = history.levels(40_100)
    assert 32 <= levels.shape[1] <= 64 and 0.4 < levels.mean() < 0.6


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
@pytest.mark.parametrize(
    ("width", "height"), [(60, 20), (80, 24), (119, 60), (120, 40), (160, 50), (300, 90), (20, 5)]
)
def test_every_screen_has_exactly_its_size(watched, width, height, glyphs):
    view = watched[0].view()
    view.title = view.message = "title \x1b[2J\u202e\n\u4e2d\u6587 " * 9
    for page in range(3):
        lines = draw(view, width, height, glyphs, page=page, help=False)
        assert len(lines) == height
        text = plain_text(lines)
        assert "\x1b" not in text and "\u202e" not in text
        if glyphs is ASCII and width >= 60:
            assert text.replace("\u4e2d", "").replace("\u6587", "").isascii()


def test_every_op_of_a_run_has_a_part_and_a_sentence(watched):
    """An op that no rule knows would be counted as input and output."""
    for path in set(watched[1].trace.messages["path"].to_pylist()):
        if PARTS[part_of(path)] == "input, output":
            assert path.split("/")[-1] in ("input", "reveal")
        said = say(path, "server0", "server1")
        assert (
            said.startswith(("the servers open masked numbers to ", "server 0 sends server 1 "))
            and "{" not in said
        )


def test_keys():
    assert keys_of(b"n\x1b[C\x1b[Dq\x1b") == ["n", "right", "left", "q", "escape"]
    assert keys_of(b"\x1b[99;5~\xc3\xa9\x00t\r\x7f\t") == ["t", "enter", "back", "tab"]
    assert clean("a\x1b[0m\u202eb") == "a\\x1b[0m\\u202eb"


def test_without_a_terminal_it_is_a_run_with_progress_lines(tmp_path):
    arguments = (
        "watch",
        "demo",
        "--set",
        "execution=shape",
        "--set",
        "workload.output_tokens=1",
        "--out",
        tmp_path,
    )
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == 0, found.output
    assert "online 1/1, virtual time" in found.stderr and "trace digest" in found.stdout
    assert [each.name for each in tmp_path.glob("demo/*/trace")] == ["trace"]


@pytest.mark.parametrize("pace", ["0", "-1x", "fast", "nanx", "infx", ""])
def test_a_pace_that_makes_no_sense(pace, tmp_path):
    found = CliRunner().invoke(app, ["watch", "demo", "--pace", pace, "--out", str(tmp_path)])
    assert found.exit_code == 2 and "accepted are max, or a positive factor such as 0.1x" in found.stderr
    assert list(tmp_path.iterdir()) == []
