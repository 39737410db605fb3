"""Text from scenarios, models and file names, made harmless for a terminal."""

from __future__ import annotations

import re

__all__ = ["STEERING", "escaped", "one_line"]

STEERING = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f"  # control characters, ESC among them, but for the line feed
    "\u2028\u2029"  # line breaks few expect
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # reverse the text around them
    "\ud800-\udfff]"  # halves of surrogate pairs, which no encoding takes
)
"""A character that could steer a terminal; the line feed is not among them."""


def escaped(text: str) -> str:
    """Return `text` with every character that could steer a terminal written as `\\x1b`; line feeds stay."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def one_line(text: str) -> str:
    """Return `text` as `escaped` does, line feeds included."""
    return escaped(text).replace("\n", "\\n")
