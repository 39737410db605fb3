"""`comet-sim run`: one scenario, each of its systems, a run folder, a summary on the screen."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import typer

from comet_sim.cli.check import Comparison, compare_with_plain, require_plain_model
from comet_sim.cli.handler import RunInterruptedError
from comet_sim.cli.output import console, print_json
from comet_sim.cli.progress import Report, reporting
from comet_sim.cli.report import show_comparison, show_summary, show_systems
from comet_sim.cli.safe import one_line
from comet_sim.cli.stopping import interruptible
from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion
from comet_sim.scenario import (
    RunFolder,
    Scenario,
    load_scenario,
    parse_override,
    prepare,
    run_name,
    write_summary,
)

if TYPE_CHECKING:
    from comet_sim.simulation import Spectator

__all__ = ["Playing", "Reported", "run_scenario"]

_JSON_SCHEMA = 1


class Playing(Protocol):
    """What is shown while the systems of a run are played."""

    def system(self, label: str) -> AbstractContextManager[tuple[Report | None, Spectator | None]]:
        """Show the run of one system, which reports to what this gives."""

    def finished(self) -> None:
        """Take that all systems are in the run folder."""


class Reported:
    """Progress on stderr, and nothing else."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    @contextmanager
    def system(self, label: str) -> Iterator[tuple[Report | None, Spectator | None]]:
        """Report the progress of one system."""
        with reporting(label, quiet=self._quiet) as progress:
            yield progress, None

    def finished(self) -> None:
        """Say nothing."""


def run_scenario(
    file: str,
    systems: Sequence[str],
    overrides: Sequence[str],
    out: Path,
    *,
    check: bool,
    as_json: bool,
    playing: Playing,
) -> None:
    """Run the systems of a scenario and show what came out; exit code 1 if `check` finds another text."""
    scenario = _choose(load_scenario(file, dict(map(parse_override, overrides))), systems)
    if check:
        require_plain_model(scenario)
    from comet_sim.simulation import simulate

    summaries: dict[str, dict[str, Any]] = {}
    comparisons: dict[str, Comparison] = {}
    masks: dict[str, Any] = {}
    with interruptible(), _kept(RunFolder.create(out, run_name(file), scenario)) as folder:
        for system in scenario.systems:
            with folder.system(system.label) as partial:
                with playing.system(system.label) as (progress, spectator):
                    result = simulate(
                        scenario, system, folder=partial, progress=progress, spectator=spectator
                    )
                write_summary(partial, result.summary)
            summaries[system.label] = result.summary
            masks[system.label] = result.masks
        playing.finished()
        if check:
            comparisons = compare_with_plain(prepare(scenario), scenario, summaries, masks)
    if as_json:
        _warn(summaries)
        print_json(_document(scenario, folder, summaries, comparisons))
    else:
        _show(folder, summaries, comparisons, overrides)
    if any(not comparison.equal for comparison in comparisons.values()):
        raise typer.Exit(1)


def _show(
    folder: RunFolder,
    summaries: dict[str, dict[str, Any]],
    comparisons: dict[str, Comparison],
    overrides: Sequence[str],
) -> None:
    screen = console()
    for label, summary in summaries.items():
        show_summary(screen, summary, folder.path / label, overrides)
        if len(summaries) > 1:
            screen.print()
    if len(summaries) > 1:
        show_systems(screen, summaries)
    for label, comparison in comparisons.items():
        show_comparison(screen, label, comparison)


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


def _warn(summaries: dict[str, dict[str, Any]]) -> None:
    """Say on stderr why values of a run may be doubtful, whatever is printed as its result."""
    for label, summary in summaries.items():
        for text in summary["warnings"]:
            print(f"warning: {label}: {one_line(text)}", file=sys.stderr)


@contextmanager
def _kept(folder: RunFolder) -> Iterator[RunFolder]:
    """Close the folder of a run, and say what is kept when the run ends early, whatever ends it."""
    try:
        yield folder
    except KeyboardInterrupt:
        folder.close()
        raise RunInterruptedError(f"interrupted; {folder.kept()}") from None
    except Exception as error:
        folder.close()
        # Who gave something that cannot be used knows that nothing came of it.
        if folder.finished or not isinstance(error, InputError):
            error.add_note(folder.kept())
        raise
    finally:
        folder.close()


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
