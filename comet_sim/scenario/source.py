"""Where in a TOML file a key stands, so that an error can name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence

__all__ = ["key_lines", "line_of", "split_key"]

Key = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)(.+?)\]\]?\s*(?:#.*)?$")
_ENTRY = re.compile(r"\s*((?:[A-Za-z0-9_.-]|\"[^\"]*\"|'[^']*'|\s)+?)\s*=")
_FENCES = ('"""', "'" * 3)


def split_key(text: str) -> list[str] | None:
    """Return the parts of a dotted TOML key, or None if `text` is none."""
    try:
        found: object = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        return None
    parts: list[str] = []
    while isinstance(found, dict):
        if len(found) != 1:
            return None
        ((part, found),) = found.items()
        parts.append(part)
    return parts


def key_lines(text: str) -> dict[Key, int]:
    """Return the line, from 1, at which each key and table of a valid TOML text first stands.

    Keys inside inline tables are not listed: their line is that of the key that holds them.
    """
    lines: dict[Key, int] = {}
    counts: dict[Key, int] = {}
    table: Key = ()
    fence: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:  # inside a string of several lines nothing is a key
            fence = None if line.count(fence) % 2 else fence
            continue
        if (header := _HEADER.match(line)) and (parts := split_key(header[2])):
            table = _table(parts, header[1] == "[[", counts)
            lines.setdefault(table, number)
        elif (entry := _ENTRY.match(line)) and (parts := split_key(entry[1])):
            key = table
            for part in parts:
                key = (*key, part)
                lines.setdefault(key, number)
            fence = next((mark for mark in _FENCES if line.count(mark) % 2), None)
    return lines


def line_of(lines: Mapping[Key, int], key: Sequence[str | int]) -> int | None:
    """Return the line of `key`, or of the nearest table around it."""
    for end in range(len(key), 0, -1):
        found = lines.get(tuple(key[:end]))
        if found is not None:
            return found
    return None


def _table(parts: Sequence[str], array: bool, counts: dict[Key, int]) -> Key:
    """Return the path of a table's header; tables of an array are numbered from 0."""
    path: Key = ()
    for i, part in enumerate(parts):
        path = (*path, part)
        if array and i == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path
