"""Measures the machine it runs on with the project's own kernels: the figures of a device file.

The only place where a wall clock has a say; what it finds is a file, and virtual time follows from the file.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import numpy as np

from comet_sim.actors import DeviceProfile
from comet_sim.mpc import ring
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["Measured", "Step", "measure_device", "step_count"]

_PRODUCTS = ((1, 1024, 1024), (16, 1024, 1024), (128, 512, 512), (128, 1024, 1024), (512, 1024, 1024))
"""Rows, inner length and columns: decode steps to prompt passes of small and middling models."""
_LENGTHS = (1 << 16, 1 << 20, 1 << 22)
"""Elements of an elementwise operation; the last one is far larger than caches."""
_SMALL = 8
_TURN_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class Step:
    """One thing measured: `ring_ops` multiply-adds and `moved` bytes took `time` ns, the median of the repeats."""

    what: str
    ring_ops: int
    moved: int
    time: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A machine's profile, and what it was derived from."""

    profile: DeviceProfile
    steps: tuple[Step, ...]


def step_count() -> int:
    """Return how many steps a measurement has."""
    return 1 + len(_LENGTHS) + len(_PRODUCTS)


def measure_device(name: str, repeats: int, progress: Callable[[Step, int], None] | None = None) -> Measured:
    """Measure call overhead, elementwise memory traffic and ring products, and fit the roofline to them.

    `progress` is told each step and its number. Launch is the time of the smallest operation, the memory figure
    that of the longest elementwise one, the rate of multiply-adds that of the fastest product.
    """
    rng = np.random.default_rng(0)
    steps: list[Step] = []

    def note(what: str, ring_ops: int, moved: int, run: Callable[[], Any]) -> Step:
        step = Step(what, ring_ops, moved, _time(run, repeats))
        steps.append(step)
        if progress is not None:
            progress(step, len(steps))
        return step

    launch = note(f"Beaver product of {_SMALL} elements", *_combine(rng, _SMALL))
    elementwise = [note(f"Beaver product of {n:,} elements", *_combine(rng, n)) for n in _LENGTHS]
    products = [note(f"matrix product {m}x{k} by {k}x{n}", *_product(rng, m, k, n)) for m, k, n in _PRODUCTS]
    longest = elementwise[-1]
    return Measured(
        DeviceProfile(
            name,
            max(_rate(step.ring_ops, step.time - launch.time) for step in products),
            _rate(longest.moved, longest.time - launch.time),
            launch.time,
            f"measured by comet-sim calibrate, median of {repeats}: {_machine()}",
        ),
        tuple(steps),
    )


def _rate(amount: int, time: int) -> int:
    return amount * 1_000_000_000 // max(1, time)


def _combine(rng: np.random.Generator, n: int) -> tuple[int, int, Callable[[], Any]]:
    """Return the cost of the local part of an elementwise Beaver product as protocols count it, and the work."""
    c, e, b, a, f = (rng.integers(-(2**62), 2**62, n) for _ in range(5))
    return 3 * n, WORD_BYTES * 5 * n, lambda: c + e * b + a * f + e * f


def _product(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[int, int, Callable[[], Any]]:
    x, y = (rng.integers(-(2**62), 2**62, shape) for shape in ((m, k), (k, n)))
    return m * k * n, WORD_BYTES * (m * k + k * n + m * n), lambda: ring.matmul(x, y)


def _time(run: Callable[[], Any], repeats: int) -> int:
    """Return the median time of a call in ns, of turns long enough for the clock; the first call warms up."""
    start = perf_counter_ns()
    run()
    calls = max(1, _TURN_NS // max(1, perf_counter_ns() - start))
    turns = []
    for _ in range(repeats):
        start = perf_counter_ns()
        for _ in range(calls):
            run()
        turns.append((perf_counter_ns() - start) / calls)
    return max(1, round(median(turns)))


def _machine() -> str:
    """Say what was measured: processor, cores this process may use, numpy, BLAS threads asked for."""
    threads = (
        os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or "as many as cores"
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, BLAS threads {threads}, numpy {np.__version__}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())
