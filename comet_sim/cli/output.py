"""Consoles and small pieces of output that all commands share."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from comet_sim.cli.fit import fitted, new_table
from comet_sim.cli.pipes import hush, reader_may_leave
from comet_sim.cli.safe import STEERING, one_line

__all__ = ["bar", "console", "plain", "print_json", "show", "table"]

_WIDTH = 120
_BAR = 24


class _Console(Console):
    """A console whose reader may leave (`| head`): then it says no more, and the command goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        hush(self.file)


def console(*, stderr: bool = False) -> Console:
    """Return a console for results (stdout) or progress (stderr); without a terminal it is plain and wide.

    Who sets COLUMNS decides the width.
    """
    found = _Console(stderr=stderr, highlight=False)
    if found.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return found
    return _Console(stderr=stderr, highlight=False, width=_WIDTH)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout; characters that could steer a terminal are escaped."""
    text = json.dumps(document, indent=2, ensure_ascii=False)
    with reader_may_leave(sys.stdout):
        sys.stdout.write(STEERING.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n")


def plain(value: object) -> Text:
    """Return text that is shown as it is, in one line: brackets in it are no markup, control characters escaped."""
    return Text(one_line(str(value)))


def table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table; columns named in `right` are numbers; without any name there is no header."""
    made = new_table(*columns, right=right)
    made.title = title
    return made


def show(out: Console, made: Table) -> None:
    """Print a table below its title, which may be wider than the table; on a narrow screen nothing is cut."""
    if made.title:
        out.print(Text(one_line(str(made.title)), style="bold"))
        made.title = None
    out.print(fitted(made, out.width))


def bar(share: float, out: Console) -> Text:
    """Return a bar for `share` of the whole, 0 to 1."""
    full = "\N{FULL BLOCK}" if out.encoding.lower().startswith("utf") else "#"
    return Text(full * round(_BAR * share), style="cyan")
