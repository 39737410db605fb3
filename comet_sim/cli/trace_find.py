"""Which trace a user means: a run folder, one system's folder in it, or the trace folder itself."""

from __future__ import annotations

import difflib
from pathlib import Path

from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion

__all__ = ["find_trace"]

_TRACE = "trace"
_FILE = "messages.parquet"
_ACCEPTED = "give the folder a run was kept in, such as runs/demo"


def find_trace(run: Path, system: str | None) -> Path:
    """Return the trace folder of a run folder, of one of its systems, or `run` itself if it is one."""
    if not run.is_dir():
        raise InputError(f"trace of {str(run)!r}: {_no_folder(run)}")
    if system is None and (run / _TRACE).is_dir():
        return run / _TRACE
    if system is None and (run / _FILE).is_file():
        return run
    found = _systems(run)
    if not found:
        raise InputError(f"trace of {str(run)!r}: {_nothing_in(run)}")
    if system is None and len(found) > 1:
        raise InputError(
            f"trace of {str(run)!r}: the run has several systems; choose one with --system: {', '.join(found)}"
        )
    if system is not None and system not in found:
        raise InputError(f"--system {system}: {run} has no such system; {suggestion(system, found)}")
    return run / (system or found[0]) / _TRACE


def _systems(run: Path) -> list[str]:
    return sorted(
        each.parent.name for each in run.glob(f"*/{_TRACE}") if not each.parent.name.startswith(".")
    )


def _no_folder(path: Path) -> str:
    """Say what there is instead of a folder, and what would be right."""
    if path.suffix == ".parquet" and (path.parent / _FILE).is_file():
        return f"one file of a trace; give its folder, {str(path.parent)!r}"
    if path.is_file():
        if path.suffix == ".toml" and _systems(path.parent):
            return f"the scenario that a run was made from; give its folder, {str(path.parent)!r}"
        if path.suffix == ".toml":
            return f"a scenario, not a run: `comet-sim run {path}` makes one"
        return f"a file; {_ACCEPTED}"
    if path.exists():
        return f"neither folder nor file; {_ACCEPTED}"
    if not path.parent.is_dir():
        return f"no such folder, {str(path.parent)!r} is none either; {_ACCEPTED}"
    others = [each.name for each in path.parent.iterdir() if each.is_dir()]
    close = difflib.get_close_matches(path.name, others, n=1)
    return f"no such folder; {f'did you mean {str(path.with_name(close[0]))!r}?' if close else _ACCEPTED}"


def _nothing_in(folder: Path) -> str:
    runs = sorted(each.name for each in folder.iterdir() if each.is_dir() and _systems(each))
    if runs:
        shown = ", ".join(str(folder / name) for name in runs[:8])
        return f"a folder of runs; give one of them: {shown}{', ...' if len(runs) > 8 else ''}"
    return f"a folder, but no finished system with a trace in it; {_ACCEPTED}"
