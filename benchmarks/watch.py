"""How much watching slows a run at full speed: wall clock with and without a screen, paired, medians.

A shape run of OPT-1.3B in this process, its screen 160 x 50 on a pseudo-terminal that another process reads. Each
pair runs both in turn; the ratio of a pair is not touched by what slows both. `--check` exits 1 above the limit.

    python -m benchmarks.watch [--pairs N] [--tokens N] [--check]
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import os
import pty
import struct
import sys
import termios
import threading
from statistics import median
from time import perf_counter, process_time

from rich.console import Console

from comet_sim.dashboard.feed import Feed
from comet_sim.dashboard.terminal import screen_loop
from comet_sim.scenario import load_scenario
from comet_sim.simulation import simulate

LIMIT = 1.15
COLUMNS, ROWS = 160, 50


class Screen:
    """A screen that only draws."""

    page = 0
    help = False
    typing = False

    def __init__(self, feed: Feed) -> None:
        self.ended = False
        self.frames = 0
        self._feed = feed

    def view(self):
        self.frames += 1
        return self._feed.view()

    def key(self, key: str) -> None:
        pass


def reader(master: int, slave: int) -> int:
    """Start a process that reads the terminal as an emulator would, until it is closed; return its id."""
    pid = os.fork()
    if not pid:
        os.close(slave)  # or the terminal never closes
        try:
            while os.read(master, 1 << 16):
                pass
        except OSError:
            pass
        os._exit(0)
    return pid


def run(scenario, *, watched: bool) -> tuple[float, float, int, str]:
    """Return wall clock, CPU time, frames and digest of one run."""
    gc.collect()
    if not watched:
        began, busy = perf_counter(), process_time()
        result = simulate(scenario)
        return perf_counter() - began, process_time() - busy, 0, result.summary["digest"]
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    child = reader(master, slave)
    wake, waker = os.pipe()
    keys, typed = os.pipe()
    with open(slave, "w", encoding="utf-8", closefd=False) as file:
        console = Console(file=file, force_terminal=True, width=COLUMNS, height=ROWS, color_system="256")
        feed = Feed("benchmark", None)
        screen = Screen(feed)
        began, busy = perf_counter(), process_time()
        thread = threading.Thread(target=screen_loop, args=(console, screen, keys, wake))
        thread.start()
        result = simulate(scenario, spectator=feed)
        screen.ended = True
        os.write(waker, b".")
        thread.join()
        took = perf_counter() - began, process_time() - busy
    for descriptor in (slave, master, wake, waker, keys, typed):
        os.close(descriptor)
    os.waitpid(child, 0)
    return *took, screen.frames, result.summary["digest"]


def main() -> int:
    """Print the figures and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=48, help="output tokens of a run")
    parser.add_argument("--check", action="store_true", help=f"exit 1 above {LIMIT}")
    options = parser.parse_args()
    scenario = load_scenario("opt-1.3b-dense", {"workload.output_tokens": options.tokens})
    run(scenario, watched=False)
    wall, cpu, frames = [], [], []
    for i in range(options.pairs):
        order = (False, True) if i % 2 else (True, False)
        found = {watched: run(scenario, watched=watched) for watched in order}
        plain, seen = found[False], found[True]
        assert plain[3] == seen[3], "watching changed the trace"
        wall.append(seen[0] / plain[0])
        cpu.append(seen[1] / plain[1])
        frames.append(seen[2] / seen[0])
        print(
            f"pair {i + 1}: {plain[0]:.2f} s alone, {seen[0]:.2f} s watched, {seen[2]} frames",
            file=sys.stderr,
        )
    print("| | median | range |\n|---|---|---|")
    print(f"| wall clock, watched to alone | {median(wall):.3f} | {min(wall):.3f} to {max(wall):.3f} |")
    print(f"| CPU time, watched to alone | {median(cpu):.3f} | {min(cpu):.3f} to {max(cpu):.3f} |")
    print(f"| frames a second | {median(frames):.1f} | {min(frames):.1f} to {max(frames):.1f} |")
    return int(options.check and median(wall) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
