"""Which rows of a trace a user means: patterns over op paths, links, phases, tokens and layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from comet_sim.errors import InputError
from comet_sim.trace.schema import phase_name

__all__ = ["Filter", "PathPattern", "collapse", "collapse_all", "head"]

_SEPARATOR = "\0"
# The name comes first, so that the search can skip to it.
_COUNTED = tuple(
    (re.compile(rf"{name}(?<![^/\0]{name})\d+(?![^/\0])"), f"{name}*") for name in ("token", "layer")
)
_WILD = {"*": "[^/]*", "?": "[^/]"}


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows to keep; what is None keeps everything.

    `path` is a pattern as `PathPattern` reads it, `link` a pair (source, destination), `phase` one of
    `set-up` (or `setup`), `offline` and `online`, `token` and `layer` the numbers of the path components
    `tokenN` and `layerN`. Only messages have a link: a filter with `link` keeps no rows of the other tables.
    Raises `InputError` for a value of another kind.
    """

    path: str | None = None
    link: tuple[str, str] | None = None
    phase: str | None = None
    token: int | None = None
    layer: int | None = None

    def __post_init__(self) -> None:
        if self.path is not None and not isinstance(self.path, str):
            raise InputError(f"path {self.path!r}: write a pattern over op paths, such as 'token0/*/ffn'")
        if self.link is not None and not _is_link(self.link):
            raise InputError(f"link {self.link!r}: write a pair of parties, such as ('server0', 'server1')")
        for name, number in (("token", self.token), ("layer", self.layer)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
                raise InputError(f"{name} {number!r}: write its number, from 0")
        if self.phase is not None:
            object.__setattr__(self, "phase", phase_name(self.phase))

    def patterns(self) -> list[PathPattern]:
        """Return the patterns a path has to match, all of them."""
        counted = [("token", self.token), ("layer", self.layer)]
        texts = [self.path] if self.path else []
        texts += [f"**/{name}{number}" for name, number in counted if number is not None]
        return [PathPattern(text) for text in texts]


def _is_link(link: object) -> bool:
    return isinstance(link, tuple) and len(link) == 2 and all(isinstance(party, str) for party in link)


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
    return collapse_all([path], depth)[0]


def head(path: str, depth: int | None) -> str:
    """Return the first `depth` components of `path`, all when None."""
    return path if depth is None else "/".join(path.split("/", depth)[:depth])


def collapse_all(paths: Sequence[str], depth: int | None = None) -> list[str]:
    """Return `collapse` of each path; a long run has a path for each op of each token and layer."""
    if not paths:
        return []
    heads = paths if depth is None else [head(path, depth) for path in paths]
    # One substitution over all of them takes a tenth of the time of one each.
    joined = _SEPARATOR.join(heads)
    for counted, folded in _COUNTED:
        joined = counted.sub(folded, joined)
    return joined.split(_SEPARATOR)


def _component(part: str) -> str:
    return "".join(_WILD.get(piece) or re.escape(piece) for piece in re.split(r"([*?])", part))
