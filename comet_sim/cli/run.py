"""`comet-sim run`: one scenario, each of its systems, a run folder, a summary on the screen."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from comet_sim.cli.check import Comparison, compare_with_plain
from comet_sim.cli.handler import RunInterruptedError
from comet_sim.cli.output import console, print_json
from comet_sim.cli.progress import reporting
from comet_sim.cli.report import show_comparison, show_summary
from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion
from comet_sim.scenario import (
    RunFolder,
    Scenario,
    SystemSpec,
    load_scenario,
    parse_override,
    prepare,
    write_summary,
)

__all__ = ["run_scenario"]

_JSON_SCHEMA = 1


def run_scenario(
    file: str,
    systems: Sequence[str],
    overrides: Sequence[str],
    out: Path,
    *,
    check: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the systems of a scenario and show what came out; exit code 1 if `check` finds another text."""
    scenario = _choose(load_scenario(file, dict(map(parse_override, overrides))), systems)
    if check and scenario.execution != "exact":
        raise InputError('--check compares text, but a shape run has none; accepted: execution = "exact"')
    folder = RunFolder.create(out, Path(file).stem if file.endswith(".toml") else Path(file).name, scenario)
    with _keeping(folder):
        summaries = {
            system.label: _run_system(scenario, system, folder, quiet) for system in scenario.systems
        }
    comparisons: dict[str, Comparison] = {}
    if check:
        comparisons = compare_with_plain(prepare(scenario), scenario, summaries)
    if as_json:
        print_json(_document(scenario, folder, summaries, comparisons))
    else:
        screen = console()
        for system in scenario.systems:
            show_summary(screen, summaries[system.label], folder.path / system.label)
        for label, comparison in comparisons.items():
            show_comparison(screen, label, comparison)
    if any(not comparison.equal for comparison in comparisons.values()):
        raise typer.Exit(1)


def _choose(scenario: Scenario, wanted: Sequence[str]) -> Scenario:
    """Return the scenario with only the systems asked for."""
    if not wanted:
        return scenario
    labels = [system.label for system in scenario.systems]
    for name in wanted:
        if name not in labels:
            raise InputError(f"--system {name}: the scenario has no such system; {suggestion(name, labels)}")
    chosen = tuple(system for system in scenario.systems if system.label in wanted)
    return scenario.model_copy(update={"systems": chosen})


def _run_system(scenario: Scenario, system: SystemSpec, folder: RunFolder, quiet: bool) -> dict[str, Any]:
    from comet_sim.simulation import simulate

    with folder.system(system.label) as partial:
        with reporting(system.label, quiet=quiet) as progress:
            result = simulate(scenario, system, folder=partial, progress=progress)
        write_summary(partial, result.summary)
    return result.summary


@contextmanager
def _keeping(folder: RunFolder) -> Iterator[None]:
    """Say what is kept when a run ends early, whatever ends it; a polite kill counts as an interrupt."""
    try:
        with _terminable():
            yield
    except KeyboardInterrupt:
        raise RunInterruptedError(f"interrupted; {folder.kept()}") from None
    except Exception as error:
        error.add_note(folder.kept())
        raise
    finally:
        folder.close()


@contextmanager
def _terminable() -> Iterator[None]:
    def stop(signum: int, frame: FrameType | None) -> None:
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _document(
    scenario: Scenario, folder: RunFolder, summaries: dict[str, Any], comparisons: dict[str, Comparison]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": _JSON_SCHEMA,
        "title": scenario.title,
        "folder": str(folder.path),
        "systems": summaries,
    }
    if comparisons:
        document["check"] = {label: comparison.document() for label, comparison in comparisons.items()}
    return document
