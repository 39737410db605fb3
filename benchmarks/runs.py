"""Wall clock, CPU time and peak memory of whole commands, each a process of its own.

Shape runs of a 7B model, the commands that look into the trace they leave, and how the time a message grows
with the length of a run. Limits are those of the project; `--check` exits 1 when one is missed.

    python -m benchmarks.runs [--long] [--repeats N] [--json] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
LLAMA = ("opt-6.7b-dense", "--set", "model=llama2-7b", "--set", "title=Llama2-7B")
OPT = ("opt-6.7b-dense",)
GROWTH = 1.15
"""Most time a message of the long run may take, in times of the short run's."""


@dataclass
class Limit:
    """What a command may take; None: no limit."""

    seconds: float | None = None
    megabytes: float | None = None


@dataclass
class Figures:
    """What a command took: medians of its repeats, the most memory of any."""

    seconds: float
    cpu: float
    megabytes: float
    messages: int = 0
    trace_bytes: int = 0


def measure(arguments: Sequence[str]) -> Figures:
    """Run `comet-sim` with `arguments` in a process of its own and return what it took."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "comet_sim", *arguments]
    began = perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {process.returncode}")
    # Linux counts kilobytes, macOS bytes.
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Figures(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def run(scenario: Sequence[str], out: Path, *settings: str) -> Figures:
    """Run a scenario into the new folder `out`; count its messages and the bytes of its trace."""
    chosen = [part for each in settings for part in ("--set", each)]
    figures = measure(["run", *scenario, *chosen, "--out", str(out), "--quiet"])
    (summary,) = out.glob("*/*/summary.json")
    phases = json.loads(summary.read_text(encoding="utf-8"))["phases"]
    figures.messages = sum(phase["messages"] for phase in phases.values())
    figures.trace_bytes = sum(file.stat().st_size for file in (summary.parent / "trace").iterdir())
    return figures


def repeated(figures: Sequence[Figures]) -> Figures:
    """Return the medians of times and the most memory."""
    last = figures[-1]
    return Figures(
        median(each.seconds for each in figures),
        median(each.cpu for each in figures),
        max(each.megabytes for each in figures),
        last.messages,
        last.trace_bytes,
    )


def collect(folder: Path, repeats: int, *, long: bool) -> dict[str, Figures]:
    """Run everything, the repeats of different commands in turn, and return the figures by name."""
    found: dict[str, list[Figures]] = {}
    for repeat in range(repeats):
        runs = folder / f"{repeat}"
        found.setdefault("--help", []).append(measure(["--help"]))
        found.setdefault("run demo", []).append(run(("demo",), runs / "demo"))
        found.setdefault("run llama2-7b, 64 out", []).append(run(LLAMA, runs / "llama"))
        trace = str(runs / "llama" / "opt-6.7b-dense")
        for view in ("--critical-path", "--top", "--stalls", "--links", "--links --verify"):
            found.setdefault(f"trace {view}", []).append(measure(["trace", trace, *view.split()]))
        found.setdefault("run opt-6.7b, 64 out", []).append(run(OPT, runs / "short"))
    if long:
        out = folder / "long"
        found["run opt-6.7b, 512 out"] = [run(OPT, out, "workload.output_tokens=512")]
        trace = str(out / "opt-6.7b-dense")
        for view in ("--critical-path", "--top"):
            found[f"trace of 512 out {view}"] = [measure(["trace", trace, view])]
        # Once more after it: the machine may have changed meanwhile.
        found["run opt-6.7b, 64 out"].append(run(OPT, folder / "again"))
    return {name: repeated(figures) for name, figures in found.items()}


LIMITS = {
    "run llama2-7b, 64 out": Limit(20, 2_000),
    "trace --critical-path": Limit(5),
    "trace --top": Limit(5),
}


def missed(results: dict[str, Figures]) -> list[str]:
    """Return a line for each limit that was missed."""
    lines = []
    for name, limit in LIMITS.items():
        figures = results[name]
        if limit.seconds is not None and figures.seconds > limit.seconds:
            lines.append(f"{name}: {figures.seconds:.1f} s, at most {limit.seconds:g}")
        if limit.megabytes is not None and figures.megabytes > limit.megabytes:
            lines.append(f"{name}: {figures.megabytes:.0f} MB, at most {limit.megabytes:g}")
    ratio = growth(results)
    if ratio is not None and ratio > GROWTH:
        lines.append(f"CPU time a message, 512 out to 64: {ratio:.2f}, at most {GROWTH}")
    return lines


def growth(results: dict[str, Figures]) -> float | None:
    """Return CPU time a message of the long run in times of the short one's; None without a long run."""
    long, short = results.get("run opt-6.7b, 512 out"), results["run opt-6.7b, 64 out"]
    return None if long is None else (long.cpu / long.messages) / (short.cpu / short.messages)


def show(results: dict[str, Figures]) -> None:
    """Print the table as Markdown."""
    print("| command | wall clock | CPU time | peak memory | messages | trace |")
    print("|---|---|---|---|---|---|")
    for name, row in results.items():
        counts = (f"{row.messages:,}", f"{row.trace_bytes / 1e6:.2f} MB") if row.messages else ("", "")
        cells = (f"`{name}`", f"{row.seconds:.1f} s", f"{row.cpu:.1f} s", f"{row.megabytes:.0f} MB", *counts)
        print(f"| {' | '.join(cells)} |")
    ratio = growth(results)
    if ratio is not None:
        print(f"\nCPU time a message, 512 tokens out to 64: {ratio:.2f}")


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--long", action="store_true", help="with a run of 512 output tokens, several minutes"
    )
    parser.add_argument("--repeats", type=int, default=3, help="repeats of all but the long run")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a limit is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = collect(Path(folder), options.repeats, long=options.long)
    lines = missed(results)
    if options.json:
        print(json.dumps({name: asdict(row) for name, row in results.items()}, indent=2))
    else:
        show(results)
    for line in lines:
        print(line, file=sys.stderr)
    return int(options.check and bool(lines))


if __name__ == "__main__":
    sys.exit(main())
