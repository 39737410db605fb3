"""Consoles and small pieces of output that all commands share."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["bar", "console", "plain", "print_json", "show", "table"]

_WIDTH = 120
_BAR = 24


def console(*, stderr: bool = False) -> Console:
    """Return a console for results (stdout) or progress (stderr); without a terminal it is plain and wide."""
    found = Console(stderr=stderr, highlight=False)
    return found if found.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def plain(value: object) -> Text:
    """Return text that is shown as it is: brackets in it are no markup."""
    return Text(str(value))


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table; columns named in `right` are numbers; without any name there is no header."""
    made = Table(title=title, show_header=any(columns), header_style="bold", box=None, pad_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return made


def show(out: Console, made: Table) -> None:
    """Print a table below its title, which may be wider than the table."""
    if made.title:
        out.print(Text(str(made.title), style="bold"))
        made.title = None
    out.print(made)


def bar(share: float, out: Console) -> Text:
    """Return a bar for `share` of the whole, 0 to 1."""
    full = "\N{FULL BLOCK}" if out.encoding.lower().startswith("utf") else "#"
    return Text(full * round(_BAR * share), style="cyan")
