"""Tables that fit a narrow screen: text wraps, bars go, rows become columns or lines; a number is never cut."""

from __future__ import annotations

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

__all__ = ["fitted", "new_table"]

_GAP = 2
_WORD = 32
"""Longest word, in characters, that a column is kept wide enough for; a longer one (a path) is folded."""
_LABEL = 20
"""Widest column that is taken for one of labels."""
_TURNED_ROWS = 6
"""Most rows that are shown side by side instead."""


def new_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table; columns named in `right` are numbers; without any name there is no header."""
    made = Table(show_header=any(columns), header_style="bold", box=None, pad_edge=False)
    for name in columns:
        number = name in right
        made.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return made


def fitted(made: Table, width: int) -> RenderableType:
    """Return what shows all of `made` in `width` columns of the screen; a table that fits stays as it is."""
    headers = [str(column.header) for column in made.columns]
    cells = [list(map(_text, column.cells)) for column in made.columns]
    numbers = [column.justify == "right" for column in made.columns]
    bars = [not header and made.show_header for header in headers]
    natural = [_widest([header, *map(str, own)]) for header, own in zip(headers, cells, strict=True)]
    if _total(natural) <= width:
        return made
    kept = [i for i, bar in enumerate(bars) if not bar]
    wanted = [natural[i] for i in kept]
    words = [_longest_word([headers[i], *map(str, cells[i])]) for i in kept]
    for longest in (_LABEL, 0):  # if at all possible, labels stay in one line
        least = [
            natural[i] if numbers[i] or natural[i] <= longest else word
            for i, word in zip(kept, words, strict=True)
        ]
        if _total(least) <= width:
            return _narrowed(made, kept, cells, _shares(least, wanted, width - _total(least)))
    rows = list(zip(*(cells[i] for i in kept), strict=True))
    names = [headers[i] for i in kept]
    if made.show_header and len(rows) <= _TURNED_ROWS:
        turned = _turned(names, rows)
        if _total([_widest(column) for column in turned]) <= width:
            return _table_of(turned)
    return _lines(names, rows)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _widest(texts: list[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _longest_word(texts: list[str]) -> int:
    return min(_WORD, max((cell_len(word) for text in texts for word in text.split()), default=0))


def _total(widths: list[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shares(least: list[int], wanted: list[int], spare: int) -> list[int]:
    """Return a width a column: the least it needs, and of what is left as much as its share of the demand."""
    demand = [max(0, more - less) for less, more in zip(least, wanted, strict=True)]
    total = max(sum(demand), 1)
    return [less + min(each, spare * each // total) for less, each in zip(least, demand, strict=True)]


def _narrowed(made: Table, kept: list[int], cells: list[list[Text]], widths: list[int]) -> Table:
    columns = [made.columns[i] for i in kept]
    right = tuple(str(column.header) for column in columns if column.justify == "right")
    narrow = new_table(*(str(column.header) for column in columns), right=right)
    narrow.show_header = made.show_header
    for column, width in zip(narrow.columns, widths, strict=True):
        column.width = width
    for row in zip(*(cells[i] for i in kept), strict=True):
        narrow.add_row(*row)
    return narrow


def _turned(names: list[str], rows: list[tuple[Text, ...]]) -> list[list[str]]:
    """Return the columns of the same table with a column a row."""
    return [names, *([str(cell) for cell in row] for row in rows)]


def _table_of(columns: list[list[str]]) -> Table:
    turned = new_table(*(column[0] for column in columns), right=tuple(column[0] for column in columns[1:]))
    for row in zip(*(column[1:] for column in columns), strict=True):
        turned.add_row(*map(Text, row))
    return turned


def _lines(names: list[str], rows: list[tuple[Text, ...]]) -> Text:
    """Return a paragraph a row: its first cell, then a line for each other one."""
    lines: list[str] = []
    for first, *others in rows:
        lines += [str(first)] if str(first) else []
        for name, cell in zip(names[1:], others, strict=True):
            if str(cell):
                lines.append(f"  {name} {cell}" if name else f"  {cell}")
    return Text("\n".join(lines), overflow="fold")
