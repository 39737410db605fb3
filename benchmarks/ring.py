"""Ring products against numpy's own `@`, and the PRG against a plain AES stream: interleaved, in one run.

Only ratios are judged, each the median over interleaved repetitions: a busy machine slows both sides alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

# One BLAS thread: numpy's integer `@` has one as well, and threads waiting for a busy core time the machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from comet_sim.mpc import ring
from comet_sim.mpc.prg import Prg

CALL_NS = 1500  # a Python call and its checks, forgiven when judging "never slower" on microsecond products
NOISE = 0.9


class Row(NamedTuple):
    """One comparison: `ratio` is how many times faster ours is, call overhead forgiven."""

    name: str
    ours_us: float
    theirs_us: float
    ratio: float
    target: float

    @property
    def passed(self) -> bool:
        return self.ratio >= self.target


def compare(name: str, ours: Callable[[], Any], theirs: Callable[[], Any], target: float, rounds: int) -> Row:
    """Time both in turns, each turn long enough for the clock (0.5 ms or one call)."""
    ours()
    start = perf_counter_ns()
    theirs()
    slow = max(1, perf_counter_ns() - start)
    calls = max(1, 500_000 // slow)
    rounds = 3 if slow > 500_000_000 else rounds
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, run in enumerate((ours, theirs)):
            start = perf_counter_ns()
            for _ in range(calls):
                run()
            times[side].append((perf_counter_ns() - start) / calls)
    ratio = statistics.median(b / max(1.0, a - CALL_NS) for a, b in zip(*times, strict=True))
    return Row(name, statistics.median(times[0]) / 1e3, statistics.median(times[1]) / 1e3, ratio, target)


def products(quick: bool) -> list[Row]:
    """Products of uniform operands; the square one has to be 10 times faster, the others never slower."""
    rng = np.random.default_rng(0)
    sides = (64, 512) if quick else (64, 256, 1024, 4096)
    shapes = [((m, k), (k, n)) for m in (1, 16, 128) for k in sides for n in sides if m * k * n < 2**28]
    shapes += [((32, 1, 64), (32, 64, 128)), ((32, 128, 64), (32, 64, 128)), ((512, 512), (512, 512))]  # type: ignore[list-item]
    shapes += [] if quick else [((1024, 1024), (1024, 1024))]
    rows = []
    for left, right in shapes:
        x, y = (rng.integers(-(2**63), 2**63 - 1, shape) for shape in (left, right))
        target = 10.0 if left == (1024, 1024) else NOISE
        name = f"{'x'.join(map(str, left))} @ {'x'.join(map(str, right))}"
        rows.append(compare(name, lambda: ring.matmul(x, y), lambda: x @ y, target, 5))  # noqa: B023
    return rows


def streams() -> list[Row]:
    """PRG requests against a fresh cipher a request: the saving is the kept key schedule."""
    prg, key = Prg(bytes(16)), algorithms.AES(bytes(16))
    rows = []
    for n in (1000, 5000, 1_000_000):
        zeros = bytes(8 * n)

        def plain(zeros: bytes = zeros) -> Any:
            return np.frombuffer(Cipher(key, modes.CTR(bytes(16))).encryptor().update(zeros), np.int64)

        rows.append(compare(f"prg {n} words", lambda: prg.words((1, 2), n), plain, NOISE, 15))  # noqa: B023
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--check", action="store_true", help="exit 1 when a ratio is below its target")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller shapes")
    options = parser.parse_args()
    rows = products(options.quick) + streams()
    if options.json:
        print(json.dumps([{**row._asdict(), "passed": row.passed} for row in rows], indent=1))
    else:
        print(f"{'case':34}{'ours us':>12}{'theirs us':>12}{'ratio':>8}{'target':>8}")
        for row in rows:
            mark = "" if row.passed else "  BELOW"
            print(
                f"{row.name:34}{row.ours_us:12.1f}{row.theirs_us:12.1f}{row.ratio:8.2f}{row.target:8.1f}{mark}"
            )
    return int(options.check and not all(row.passed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
