"""Layout of the four tables of a trace: which fields are names, how wide each is and how it is encoded."""

from __future__ import annotations

from typing import Literal, NamedTuple

from comet_sim.errors import InputError
from comet_sim.events import Compute, DealerRequest, Message, Phase, Reveal

__all__ = ["FOOTER_KEY", "PHASES", "SCHEMA_VERSION", "TABLES", "Column", "Table", "phase_name"]

SCHEMA_VERSION = 1
"""Version of the files' layout; a reader refuses any other."""

FOOTER_KEY = "comet-sim"
"""Key of the JSON in each file's footer: schema, version, table, rows, digest and the run's metadata."""

PHASES: tuple[str, ...] = tuple(phase.label for phase in Phase)
"""Texts of the `phase` column, by the integer the records carry."""

_ALIASES = {"setup": "set-up"}

Kind = Literal["name", "phase", "int8", "int32", "int64"]
Encoding = Literal["dictionary", "delta"]


class Column(NamedTuple):
    """One field of a record: names and phases are text on disk, the rest integers of the width of `kind`."""

    name: str
    kind: Kind
    encoding: Encoding


class Table(NamedTuple):
    """One table of the trace, with its columns in the order of the record's fields."""

    name: str
    columns: tuple[Column, ...]
    named: tuple[int, ...]
    """Positions of the columns that hold interned names."""

    def at(self, column: str) -> int:
        """Return the position of `column`."""
        return next(i for i, each in enumerate(self.columns) if each.name == column)


def phase_name(text: str) -> str:
    """Return the phase a person means by `text` (`setup` is `set-up`); raises `InputError` for any other."""
    name = _ALIASES.get(text, text)
    if name not in PHASES:
        raise InputError(f"phase {text!r}: accepted are {', '.join(PHASES)}")
    return name


_NAMES = frozenset({"path", "src", "dst", "party", "audience", "what", "why", "kind"})
_WIDTHS: dict[str, Kind] = {"phase": "phase", "depth": "int32", "priority": "int8"}
# Fields that grow steadily from row to row: their differences are small and repeat.
_STEADY = frozenset({"id", "cause", "created", "ready", "start", "end", "time", "message", "depth"})


def _table(name: str, fields: tuple[str, ...]) -> Table:
    columns = tuple(
        Column(
            field,
            "name" if field in _NAMES else _WIDTHS.get(field, "int64"),
            "delta" if field in _STEADY else "dictionary",
        )
        for field in fields
    )
    return Table(name, columns, tuple(i for i, each in enumerate(columns) if each.kind == "name"))


TABLES: tuple[Table, ...] = (
    _table("messages", Message._fields),
    _table("compute", Compute._fields),
    _table("reveals", Reveal._fields),
    _table("dealer", DealerRequest._fields),
)
