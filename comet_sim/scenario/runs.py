"""Run folders: the resolved scenario and, per system, summary and trace; never a half-written system."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comet_sim.errors import InputError
from comet_sim.scenario.schema import Scenario
from comet_sim.scenario.toml import dump
from comet_sim.scenario.whole import shielded, write_whole

__all__ = ["RunFolder", "run_name", "write_summary"]

_MOST = 10_000
_KEPT_SCENARIO = "scenario.toml"
_NUMBERED = re.compile(r"(.+)-[0-9]+")


def run_name(file: Path | str) -> str:
    """Return what the runs of a scenario file, or of a shipped scenario's name, are called.

    The scenario that a run folder keeps is called like the run it belongs to, without its number.
    """
    path = Path(file).expanduser()
    if path.name == _KEPT_SCENARIO and any(path.parent.glob("*/summary.json")):
        own = path.resolve().parent
        numbered = _NUMBERED.fullmatch(own.name)
        return numbered[1] if numbered and (own.parent / numbered[1]).is_dir() else own.name
    return path.stem if path.suffix == ".toml" else path.name


class RunFolder:
    """One run: `scenario.toml`, and `<system>/` with `summary.json` and `trace/` per finished system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.finished: list[str] = []

    @classmethod
    def create(cls, parent: Path, stem: str, scenario: Scenario) -> RunFolder:
        """Make the next free `parent/stem`, `parent/stem-2`, ... and write the resolved scenario there.

        Raises `InputError` if nothing can be written there.
        """
        text = dump(scenario)
        folder: RunFolder | None = None
        try:
            with shielded():
                parent.mkdir(parents=True, exist_ok=True)
                folder = cls(_next_free(parent, stem))
                write_whole(folder.path / _KEPT_SCENARIO, text)
        except BaseException as error:
            if folder is not None:
                folder.close()
            if isinstance(error, OSError):
                raise InputError(
                    f"run folder {parent / stem} cannot be written: {error.strerror or error}; "
                    "choose another place with --out"
                ) from None
            raise
        return folder

    @contextmanager
    def system(self, label: str) -> Iterator[Path]:
        """Give a folder for one system to write to; it gets its name once the body ends without an error."""
        partial = self.path / f".{label}.partial"
        partial.mkdir()
        try:
            yield partial
            with shielded():
                partial.rename(self.path / label)
                self.finished.append(label)
        finally:
            with shielded():
                shutil.rmtree(partial, ignore_errors=True)  # gone already if the system has finished

    def close(self) -> None:
        """Remove the folder if no system has finished."""
        with shielded():
            if not self.finished:
                shutil.rmtree(self.path, ignore_errors=True)

    def kept(self) -> str:
        """Say what is left after a failure, once closed."""
        if self.finished:
            return f"kept {', '.join(str(self.path / label) for label in self.finished)}"
        return f"{self.path} could not be removed" if self.path.exists() else "nothing was kept"


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`, whole or not at all."""
    write_whole(folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def _next_free(parent: Path, stem: str) -> Path:
    for number in range(1, _MOST):
        path = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        return path
    raise InputError(
        f"{parent} has {_MOST - 1} runs of {stem}; remove some, or choose another place with --out"
    )
