"""Run folders: the resolved scenario and, per system, summary and trace; never a half-written system."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from comet_sim.errors import InputError
from comet_sim.scenario.schema import Scenario
from comet_sim.scenario.toml import dump

__all__ = ["RunFolder", "write_summary"]

_MOST = 10_000


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
        try:
            parent.mkdir(parents=True, exist_ok=True)
            folder = cls(_next_free(parent, stem))
            _write(folder.path / "scenario.toml", text)
        except OSError as error:
            raise InputError(
                f"run folder {parent / stem} cannot be written: {error.strerror or error}; "
                "choose another place with --out"
            ) from None
        return folder

    @contextmanager
    def system(self, label: str) -> Iterator[Path]:
        """Give a folder for one system to write to; it gets its name once the body ends without an error."""
        partial = self.path / f".{label}.partial"
        partial.mkdir()
        try:
            yield partial
            partial.rename(self.path / label)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self.finished.append(label)

    def close(self) -> None:
        """Remove the folder if no system has finished."""
        if not self.finished:
            shutil.rmtree(self.path, ignore_errors=True)

    def kept(self) -> str:
        """Say what is left after a failure."""
        if not self.finished:
            return "nothing was kept"
        return f"kept {', '.join(str(self.path / label) for label in self.finished)}"


def write_summary(folder: Path, summary: dict[str, Any]) -> None:
    """Write `summary.json`, whole or not at all."""
    _write(folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


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
