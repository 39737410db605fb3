"""`comet-sim replay`: a finished run on the screen, from its trace and what else its folder keeps."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from comet_sim.cli.output import console
from comet_sim.cli.stopping import interruptible
from comet_sim.cli.trace_find import find_trace
from comet_sim.cli.watch import read_pace
from comet_sim.comet.bitmap import load_bitmap
from comet_sim.dashboard.replay import ReplayScreen
from comet_sim.dashboard.terminal import has_terminal, screen_loop, single_keys
from comet_sim.errors import InputError
from comet_sim.simulation import MASKS_FILE
from comet_sim.trace.store import Trace

__all__ = ["replay_run"]


def replay_run(run: Path, system: str | None, pace: str) -> None:
    """Show a run until somebody leaves; raises InputError where there is no run, or no terminal."""
    speed = None if pace == "auto" else read_pace(pace, "auto")
    folder = find_trace(run, system)
    if not has_terminal():
        raise InputError(f"replay needs a terminal; `comet-sim trace {run}` prints what is in a trace")
    trace = Trace.load(folder)
    kept = folder.parent / "summary.json"
    summary = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else trace.metadata
    masks = folder.parent / MASKS_FILE
    screen = ReplayScreen(run.name, trace, summary, load_bitmap(masks) if masks.is_file() else None, speed)
    keys = sys.stdin.fileno()
    with interruptible(), single_keys(keys):
        wake, waker = os.pipe()
        try:
            screen_loop(console(), screen, keys, wake)
        except EOFError:
            return
        finally:
            os.close(wake)
            os.close(waker)
