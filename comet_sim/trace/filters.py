"""Which rows of a trace a user means: patterns over op paths, links, phases, tokens and layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Filter", "PathPattern", "collapse"]

_COUNTED = re.compile(r"(?<![^/])(token|layer)\d+(?![^/])")
_WILD = {"*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows to keep; what is None keeps everything.

    `path` is a pattern as `PathPattern` reads it, `link` a pair (source, destination), `phase` one of
    `setup`, `offline` and `online`, `token` and `layer` the numbers of the path components `tokenN` and
    `layerN`. Only messages have a link: a filter with `link` keeps no rows of the other tables.
    """

    path: str | None = None
    link: tuple[str, str] | None = None
    phase: str | None = None
    token: int | None = None
    layer: int | None = None

    def patterns(self) -> list[PathPattern]:
        """Return the patterns a path has to match, all of them."""
        counted = [("token", self.token), ("layer", self.layer)]
        texts = [self.path] if self.path else []
        texts += [f"**/{name}{number}" for name, number in counted if number is not None]
        return [PathPattern(text) for text in texts]


class PathPattern:
    """Pattern over the components of an op path; it matches a path and everything below it.

    `*` stands for any run of characters and `?` for one, both within a component; a component `**` stands for
    any number of components. So `token0/layer1` is a plain prefix and `*/layer1/ffn/*` any op of that FFN.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        parts = [part for part in text.split("/") if part]
        regex = "".join("(?:[^/]+/)*" if part == "**" else _component(part) + "/" for part in parts)
        self._regex = re.compile(regex)

    def prefix(self, path: str) -> str | None:
        """Return the leading part of `path` the pattern covers, or None when it does not match."""
        found = self._regex.match(path + "/")
        return found.group()[:-1] if found else None

    def matches(self, paths: Sequence[str]) -> list[bool]:
        """Return for each path whether it matches."""
        match = self._regex.match
        return [match(path + "/") is not None for path in paths]


def collapse(path: str, depth: int | None = None) -> str:
    """Return the first `depth` components of `path` (all when None), with `token3` as `token*`, `layer3` too.

    The result is itself a pattern for the paths it stands for.
    """
    if depth is not None:
        path = "/".join(path.split("/", depth)[:depth])
    return _COUNTED.sub(r"\1*", path)


def _component(part: str) -> str:
    return "".join(_WILD.get(piece) or re.escape(piece) for piece in re.split(r"([*?])", part))
