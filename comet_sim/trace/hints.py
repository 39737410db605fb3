"""What to tell someone whose filter keeps nothing."""

from __future__ import annotations

import difflib
import re
from dataclasses import fields, replace

from comet_sim.trace.columns import codes
from comet_sim.trace.filters import Filter, PathPattern
from comet_sim.trace.schema import TABLES
from comet_sim.trace.store import Trace

__all__ = ["describe", "why_nothing"]

_TITLES = {"path": "op"}


def describe(filters: Filter) -> str:
    """Return a filter as text, such as `op='**/relu', token=3`."""
    said = []
    for field in fields(filters):
        value = getattr(filters, field.name)
        if value is not None:
            text = "->".join(value) if isinstance(value, tuple) else value
            said.append(f"{_TITLES.get(field.name, field.name)}={text!r}")
    return ", ".join(said)


def why_nothing(trace: Trace, filters: Filter) -> str:
    """Return a line on why no row of any table matches: which part of the filter matches nothing, and what would."""
    paths = _paths(trace)
    reasons = []
    if filters.path and not any(PathPattern(filters.path).matches(paths)):
        near = _near(filters.path, paths)
        reasons.append(f"did you mean op={near!r}?" if near else f"op={filters.path!r} is in no op path")
    for name in ("token", "layer"):
        number = getattr(filters, name)
        known = sorted(
            {int(found) for path in paths for found in re.findall(rf"(?:^|/){name}(\d+)(?=/|$)", path)}
        )
        if number is not None and number not in known:
            reasons.append(
                f"the run has {name}s {known[0]} to {known[-1]}" if known else f"the run has no {name}s"
            )
    for name in ("link", "phase"):
        only = Filter(**{name: getattr(filters, name)})
        if only != Filter() and not _any(trace.select(only)):
            reasons.append(f"nothing at all has {describe(only)}")
    if not reasons:
        reasons = ["each of these alone matches some, but not together"]
        for field in fields(filters):
            less = replace(filters, **{field.name: None})
            if getattr(filters, field.name) is not None and _any(trace.select(less)):
                name = _TITLES.get(field.name, field.name)
                reasons = [f"without {name} there are some"]
    return f"no rows match {describe(filters)}; {', '.join(reasons)}"


def _paths(trace: Trace) -> list[str]:
    found: set[str] = set()
    for table in TABLES:
        for block in trace.blocks(table.name, ["path"]):
            found.update(codes(block, "path")[1])
    return sorted(found)


def _any(trace: Trace) -> bool:
    return any(len(block) for table in TABLES for block in trace.blocks(table.name, ["path"]))


def _near(pattern: str, paths: list[str]) -> str | None:
    """Return a pattern like `pattern` that matches some of `paths`: an op further down, or one written alike."""
    parts = [part for part in pattern.split("/") if part]
    known = sorted({part for path in paths for part in path.split("/")})
    spelled = [
        part if part == "**" or any(PathPattern(part).matches(known)) else _closest(part, known)
        for part in parts
    ]
    if None in spelled:
        return None
    text = "/".join(part for part in spelled if part is not None)
    return next((each for each in (text, f"**/{text}") if any(PathPattern(each).matches(paths))), None)


def _closest(part: str, known: list[str]) -> str | None:
    found = difflib.get_close_matches(part, known, n=1)
    return found[0] if found else None
