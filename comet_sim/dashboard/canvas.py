"""Lines of styled text put beside and below each other: what a frame is drawn with, several times a second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.control import Control
from rich.segment import Segment
from rich.style import Style

__all__ = [
    "ASCII",
    "UNICODE",
    "Canvas",
    "Glyphs",
    "Line",
    "beside",
    "box",
    "clean",
    "fit",
    "plain_text",
    "wrap",
]

Line = list[tuple[str, str]]
"""Pieces of text, each with the name of its style."""

# Told apart by brightness and by what is written, never by hue alone; hues are safe for colour-blind eyes.
_STYLES = {
    "": Style.null(),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
    "title": Style(bold=True, reverse=True),
    "frame": Style(dim=True),
    "head": Style(bold=True),
    "key": Style(bold=True, color="cyan"),
    "on": Style(color="cyan"),
    "wait": Style(bold=True, color="yellow"),
    "now": Style(bold=True),
}


class Glyphs:
    """Characters a terminal can show."""

    __slots__ = ("bar", "cache", "corners", "off", "on", "ramp", "sides")

    def __init__(self, ramp: str, bar: str, corners: str, sides: str, on: str, off: str, cache: str) -> None:
        self.ramp = ramp
        self.bar = bar
        self.corners = corners
        self.sides = sides
        self.on = on
        self.off = off
        self.cache = cache
        """Of an entry that is here, a hole, refilled, prefetched."""

    def spark(self, levels: NDArray[np.float64], width: int) -> str:
        """Return shares 0 to 1 as `width` characters; the latest at the right."""
        if not len(levels) or width <= 0:
            return " " * max(0, width)
        if len(levels) > width:
            edges = np.arange(width) * len(levels) // width
            sizes = np.diff(np.append(edges, len(levels)))
            levels = np.add.reduceat(levels, edges) / sizes
        top = len(self.ramp) - 1
        # Something is never shown as nothing.
        steps = np.where(levels > 0, np.maximum(1, np.rint(levels * top)), 0).astype(int)
        return "".join(self.ramp[i] for i in steps.tolist()).rjust(width)

    def share(self, share: float, width: int) -> str:
        """Return a bar for a share of the whole."""
        return (self.bar * (max(1, round(width * share)) if share > 0 else 0))[:width].ljust(width)


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "█", "╭╮╰╯", "─│", "█", "·", "█·rp")
ASCII = Glyphs(" .:-=+*#@", "#", "++++", "-|", "#", ".", "#.rp")


class Canvas:
    """Lines of one width, as rich can print them; `home`: over the screen from its first line on."""

    def __init__(self, lines: Sequence[Line], *, home: bool = False) -> None:
        self.lines = lines
        self.home = home

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.home:
            yield Control.home()
        last = len(self.lines) - 1
        for number, line in enumerate(self.lines):
            for text, style in line:
                yield Segment(text, _STYLES[style])
            if number < last:
                yield Segment.line()


def plain_text(lines: Iterable[Line]) -> str:
    """Return lines without their styles."""
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines)


def clean(text: str) -> str:
    """Return text with whatever could steer a terminal written as `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "replace").decode("ascii") for c in text
    )


def _cells(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def fit(line: Line, width: int) -> Line:
    """Return a line cut or filled to exactly `width` cells."""
    found: Line = []
    left = width
    for text, style in line:
        size = _cells(text)
        if size > left:
            text = set_cell_size(text, left)
            size = left
        if text:
            found.append((text, style))
        left -= size
        if not left:
            break
    if left:
        found.append((" " * left, ""))
    return found


def wrap(text: str, width: int, most: int, style: str = "") -> list[Line]:
    """Return text broken at blanks into at most `most` lines; what is left out ends in three dots."""
    lines: list[str] = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _cells(joined) <= width or not lines[-1]:
            lines[-1] = joined
        else:
            lines.append(word)
    if len(lines) > most:
        lines = lines[:most]
        lines[-1] = set_cell_size(lines[-1], max(0, min(_cells(lines[-1]), width - 3))) + "..."
    return [[(line, style)] for line in lines]


def box(title: str, lines: Sequence[Line], width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Return lines in a frame of `width` by `height` cells, cut or filled."""
    across, down = tuple(glyphs.sides)
    left, right, low_left, low_right = tuple(glyphs.corners)
    inner = width - 4
    head = set_cell_size(title, min(_cells(title), width - 5))
    rest = across * (width - 5 - _cells(head))
    found: list[Line] = [[(left + across, "frame"), (f" {head} ", "head"), (rest + right, "frame")]]
    for i in range(height - 2):
        body = fit(lines[i], inner) if i < len(lines) else [(" " * inner, "")]
        found.append([(f"{down} ", "frame"), *body, (f" {down}", "frame")])
    found.append([(low_left + across * (width - 2) + low_right, "frame")])
    return found


def beside(*blocks: Sequence[Line]) -> list[Line]:
    """Put blocks of one height side by side."""
    return [[piece for line in row for piece in line] for row in zip(*blocks, strict=True)]
