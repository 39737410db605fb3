"""The terminal: alternate screen, single keys, a frame four times a second; left as it was whatever happens."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console

from comet_sim.dashboard.canvas import ASCII, UNICODE, Canvas, Glyphs
from comet_sim.dashboard.layout import draw
from comet_sim.dashboard.view import View

__all__ = ["Shown", "has_terminal", "keys_of", "screen_loop", "single_keys"]

_FRAME_S = 0.25
_SHARE = 12
"""At least so many times as long as drawing a frame took, until the next: a run is held up by a part of that only."""
_AFTER_KEY_S = 0.04

_SEQUENCES = {
    b"\x1b[C": "right", b"\x1b[D": "left", b"\x1b[A": "up", b"\x1b[B": "down",
    b"\x1bOC": "right", b"\x1bOD": "left", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1b[H": "0", b"\x1b[F": "$", b"\x1bOH": "0", b"\x1bOF": "$", b"\x1b[1~": "0", b"\x1b[4~": "$",
}  # fmt: skip


class Shown(Protocol):
    """What is on the screen, and what keys do to it."""

    page: int
    help: bool
    typing: bool
    """Whether a line is being typed: then each key is a part of it."""
    ended: bool
    """Whether the screen is to be left."""

    def view(self) -> View:
        """Return what to draw now."""

    def key(self, key: str) -> None:
        """Take a key: a character, `right`, `left`, `up`, `down`, `escape`, `enter` or `back`."""


def has_terminal() -> bool:
    """Return whether somebody sits before a screen and a keyboard."""
    try:
        return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    except (AttributeError, ValueError):  # a stream that is closed, or none at all
        return False


@contextmanager
def single_keys(descriptor: int) -> Iterator[None]:
    """Let each key arrive at once and unseen; Ctrl-C stays a signal, Ctrl-Z would leave a foreign screen behind."""
    import termios
    import tty

    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        now = termios.tcgetattr(descriptor)
        now[6][termios.VSUSP] = b"\x00"
        termios.tcsetattr(descriptor, termios.TCSANOW, now)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def keys_of(data: bytes) -> list[str]:
    """Return the keys behind bytes a terminal sent; sequences that mean nothing here are left out."""
    found: list[str] = []
    while data:
        if data[:1] == b"\x1b" and len(data) > 1 and data[1:2] in b"[O":
            end = next((i for i in range(2, len(data)) if 0x40 <= data[i] <= 0x7E), len(data) - 1) + 1
            key = _SEQUENCES.get(data[:end])
            found += [key] if key else []
            data = data[end:]
            continue
        named = {
            b"\x1b": "escape",
            b"\r": "enter",
            b"\n": "enter",
            b"\x7f": "back",
            b"\x08": "back",
            b"\t": "tab",
        }
        one = data[:1]
        found.append(named.get(one) or one.decode("ascii", "ignore"))
        data = data[1:]
    return [key for key in found if key and (len(key) > 1 or key.isprintable())]


def glyphs_of(console: Console) -> Glyphs:
    """Return the characters that the terminal's encoding has."""
    return UNICODE if console.encoding.lower().startswith("utf") else ASCII


def screen_loop(console: Console, shown: Shown, keys: int, wake: int) -> None:
    """Draw and take keys until `shown.ended`; a byte at the descriptor `wake` makes it look at once."""
    glyphs = glyphs_of(console)
    with console.screen(hide_cursor=True):
        while not shown.ended:
            began = time.monotonic()
            width, height = console.size
            lines = draw(shown.view(), width, height, glyphs, page=shown.page, help=shown.help)
            console.print(Canvas(lines, home=True), end="")
            wait = max(_FRAME_S, _SHARE * (time.monotonic() - began))
            if _took_keys(shown, keys, wake, wait):
                # What the key set off is seen soon, and a key held down does not draw a frame each.
                _took_keys(shown, keys, wake, _AFTER_KEY_S)


def _took_keys(shown: Shown, keys: int, wake: int, wait: float) -> bool:
    """Wait for keys, `wait` s at most, and hand them on; return whether there were any."""
    ready, _, _ = select.select([keys, wake], [], [], wait)
    if wake in ready:
        os.read(wake, 64)
    if keys not in ready:
        return False
    data = os.read(keys, 256)
    if not data:
        raise EOFError("the terminal is gone")
    for key in keys_of(data):
        if shown.typing:
            shown.key(key)
        elif key == "tab":
            shown.page += 1
        elif key in ("h", "?") and not shown.help:
            shown.help = True
        elif shown.help:
            shown.help = False
            if key == "q":
                continue
        else:
            shown.key(key)
    return True
