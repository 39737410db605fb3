"""Scenarios as TOML text that reads back as the same scenario."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from comet_sim.scenario.schema import Scenario

__all__ = ["as_toml", "dump", "write_table"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump(scenario: Scenario) -> str:
    """Return `scenario` with all defaults written out, as TOML."""
    table = scenario.resolved().model_dump(exclude_none=True)
    table["network"] = {"profile": table["network"].pop("profile"), **table["network"]}
    return "".join(f"{line}\n" for line in write_table(table))


def as_toml(value: Any) -> Any:
    """Return a copy of a nested value in the types TOML has: numpy's numbers and arrays and paths as plain ones."""
    if isinstance(value, Mapping):
        return {key: as_toml(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_toml(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def write_table(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the lines of a table: its plain values first, then its tables; empty tables are left out."""
    nested: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) or _is_tables(value):
            nested.append((key, value))
        else:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in nested:
        below = (*path, key)
        name = ".".join(map(_key, below))
        if _is_tables(value):
            for item in value:
                yield ""
                yield f"[[{name}]]"
                yield from write_table(item, below)
        elif value:
            if any(not isinstance(item, Mapping) for item in value.values()):
                yield ""
                yield f"[{name}]"
            yield from write_table(value, below)


def _is_tables(value: Any) -> bool:
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(item, Mapping) for item in value)
    )


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are a subset of TOML's, except that TOML also wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"no TOML form for {value!r}")
