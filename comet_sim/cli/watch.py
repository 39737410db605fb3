"""`comet-sim watch`: a run on the screen while it is played; without a terminal, progress lines as `run` has them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from comet_sim.cli.output import console
from comet_sim.cli.progress import Report
from comet_sim.cli.run import Reported, run_scenario
from comet_sim.cli.stopping import interruptible
from comet_sim.dashboard.live import LiveScreen
from comet_sim.dashboard.terminal import has_terminal
from comet_sim.errors import InputError
from comet_sim.scenario import run_name
from comet_sim.simulation import Spectator

__all__ = ["read_pace", "watch_scenario"]


def watch_scenario(
    file: str,
    systems: Sequence[str],
    overrides: Sequence[str],
    out: Path,
    *,
    pace: str,
    paused: bool,
    leave: bool,
    as_json: bool,
) -> None:
    """Run the systems of a scenario on the screen; then show what came out, as `run` does."""
    speed = None if pace == "max" else read_pace(pace, "max")
    if not has_terminal():
        run_scenario(
            file, systems, overrides, out, check=False, as_json=as_json, playing=Reported(quiet=False)
        )
        return
    # The screen stands within what turns signals into errors: it is left before anything is told.
    with interruptible():
        playing = _OnScreen(LiveScreen(console(), run_name(file), speed, paused=paused), leave=leave)
        with playing.screen:
            run_scenario(file, systems, overrides, out, check=False, as_json=as_json, playing=playing)


class _OnScreen:
    def __init__(self, screen: LiveScreen, *, leave: bool) -> None:
        self.screen = screen
        self._leave = leave

    @contextmanager
    def system(self, label: str) -> Iterator[tuple[Report | None, Spectator | None]]:
        with nullcontext(self.screen.start()) as feed:
            yield None, feed

    def finished(self) -> None:
        if not self._leave:
            self.screen.stay()
        self.screen.close()


def read_pace(text: str, other: str) -> float:
    """Read `0.1x`: virtual seconds a second of wall clock; raises InputError, which names the `other` word too."""
    try:
        pace = float(text.removesuffix("x"))
    except ValueError:
        pace = math.nan
    if not (math.isfinite(pace) and pace > 0):
        raise InputError(f"--pace {text}: accepted are {other}, or a positive factor such as 0.1x")
    return pace
