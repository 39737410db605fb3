"""`comet-sim watch` at a pseudo-terminal: screens, keys, interrupts."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from pseudo_terminal import PseudoTerminal

from comet_sim.trace import Trace

SCREENS = Path(__file__).parent / "screens"
WRITE = os.environ.get("COMET_SIM_SCREENS") == "write"
COMET = (
    "watch", "comet", "--system", "comet-crypten-accurate", "--set", "workload.output_tokens=2",
    "--set", "workload.prompt_tokens=6",
)  # fmt: skip
SHAPES = ("watch", "demo", "--set", "execution=shape", "--set", "workload.output_tokens=1")


def assert_screen(name, shown):
    """Compare a screen with the one kept; COMET_SIM_SCREENS=write keeps it."""
    path = SCREENS / f"{name}.txt"
    if WRITE:
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8"), f"another screen than {path.name}:\n{shown}"


def test_screens_steps_sizes_and_an_interrupt(tmp_path):
    """One run under Comet, held at its first message and stepped: each screen is as it was kept."""
    with PseudoTerminal((*COMET, "--paused", "--out", tmp_path), 80, 24) as terminal:
        terminal.until("PAUSED", "clock 100 us")
        terminal.type("t")
        terminal.until("PAUSED", "0 of 2 tokens", "online", "look up the embedding")
        for _ in range(3):
            before = terminal.text()
            terminal.type("n")
            while terminal.until("PAUSED") == before:
                pass
        assert_screen("first-80x24", terminal.text())
        terminal.type("t")
        terminal.until("PAUSED", "output token 1")
        assert_screen("token-80x24", terminal.text())
        terminal.type("\t")
        assert_screen("skipped-80x24", terminal.until("what Comet skips: layer 3", "h7"))
        terminal.type("\t")
        assert_screen("books-80x24", terminal.until("active heads"))
        terminal.type("h")
        assert_screen("help-80x24", terminal.until("random-looking"))
        terminal.type("h")
        terminal.resize(160, 50)
        assert_screen("token-160x50", terminal.until("cost so far, by phase", "KV cache: layer 3", "q quit"))
        terminal.resize(50, 12)
        terminal.until("this needs 60 x 20")
        terminal.signal(signal.SIGINT)
        assert terminal.exit_code() == 130
        assert terminal.raw.endswith(b"error: interrupted; nothing was kept\r\n")
        assert terminal.sane()
    assert list(tmp_path.iterdir()) == []


def test_a_run_to_its_end(tmp_path):
    """No colour where nobody wants it; the run folder is the one `run` leaves."""
    with PseudoTerminal((*SHAPES, "--out", tmp_path), 100, 30, NO_COLOR="1") as terminal:
        terminal.until("FINISHED", "the run has ended")
        terminal.type("q")
        assert terminal.exit_code() == 0
        assert terminal.sane()
        shown = terminal.raw.split(b"\x1b[?1049l")[-1].decode()
    assert "trace digest" in shown and not re.search(rb"\x1b\[[0-9;]*3[0-7]m", terminal.raw)
    (folder,) = (tmp_path / "demo").glob("dense*")
    assert json.loads((folder / "summary.json").read_text())["digest"] in shown
    Trace.load(folder / "trace").verify()


@pytest.mark.parametrize("stop", ["q", "\x03", signal.SIGTERM])
def test_leaving_early_keeps_nothing_half_written(tmp_path, stop):
    """A run at a slow pace is left by key, by Ctrl-C and by a signal."""
    with PseudoTerminal((*SHAPES, "--pace", "0.001x", "--out", tmp_path), 80, 24) as terminal:
        terminal.until("set-up, 0 of 1", "RUNNING", "pace 0.001x")
        if isinstance(stop, str):
            terminal.type(stop)
        else:
            terminal.signal(stop)
        assert terminal.exit_code() == 130
        assert terminal.raw.endswith(b"error: interrupted; nothing was kept\r\n")
        assert terminal.sane()
    assert list(tmp_path.iterdir()) == []
