"""Where the rows of a table come from, block by block: a Parquet file, a recorder's memory, a part of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from comet_sim.errors import InputError
from comet_sim.trace.arrow import arrow_schema
from comet_sim.trace.schema import Table, phase_name

__all__ = ["FileSource", "KeptSource", "PartSource", "Source"]


class Source(Protocol):
    """Rows of one table in consecutive blocks, as they were recorded."""

    @property
    def blocks(self) -> int:
        """How many blocks there are."""

    def read(self, columns: Sequence[str], blocks: Sequence[int]) -> pa.Table:
        """Return `columns` of the chosen blocks as one table with one dictionary a column."""


class FileSource:
    """The row groups of a Parquet file, whose page checksums are compared on reading."""

    def __init__(self, path: Path, table: Table, file: pq.ParquetFile) -> None:
        self._path = path
        self._table = table
        # Kept open: a run folder gets its final name after its trace was opened.
        self._file = file

    @property
    def blocks(self) -> int:
        """How many row groups the file has."""
        return int(self._file.num_row_groups)

    def read(self, columns: Sequence[str], blocks: Sequence[int]) -> pa.Table:
        """Return `columns` of the chosen row groups; raises `InputError` naming a damaged file."""
        try:
            stored = self._file.read_row_groups(list(blocks), columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self._path}: damaged, cannot be read ({error})") from error
        # In the order asked for, whatever the file's is.
        table = joined(self._table, columns, [stored.replace_schema_metadata(None).select(list(columns))])
        return _with_phase_names(table)


class KeptSource:
    """Blocks kept in memory."""

    def __init__(self, table: Table, kept: list[pa.Table]) -> None:
        self._table = table
        self._kept = kept

    @property
    def blocks(self) -> int:
        """How many blocks were kept."""
        return len(self._kept)

    def read(self, columns: Sequence[str], blocks: Sequence[int]) -> pa.Table:
        """Return `columns` of the chosen blocks."""
        return joined(self._table, columns, [self._kept[i].select(list(columns)) for i in blocks])


class PartSource:
    """The rows of another source that `keep` lets through, which reads the columns `needed`."""

    def __init__(self, whole: Source, needed: Sequence[str], keep: Callable[[pa.Table], pa.Table]) -> None:
        self._whole = whole
        self._needed = needed
        self._keep = keep

    @property
    def blocks(self) -> int:
        """How many blocks the whole has; some may have no rows left."""
        return self._whole.blocks

    def read(self, columns: Sequence[str], blocks: Sequence[int]) -> pa.Table:
        """Return `columns` of the rows kept in the chosen blocks."""
        wanted = list(dict.fromkeys((*columns, *self._needed)))
        return self._keep(self._whole.read(wanted, blocks)).select(list(columns))


def _with_phase_names(table: pa.Table) -> pa.Table:
    """Give phases the names of this version; raises `InputError` for one it does not know."""
    if "phase" not in table.column_names or not len(table):
        return table
    phases = table["phase"].combine_chunks()
    texts = phases.dictionary.to_pylist()
    names = [phase_name(text) for text in texts]
    if names == texts:
        return table
    renamed = pa.DictionaryArray.from_arrays(phases.indices, pa.array(names, pa.string()))
    place = table.schema.get_field_index("phase")
    return table.set_column(place, table.schema.field(place), renamed)


def joined(table: Table, columns: Sequence[str], parts: Sequence[pa.Table]) -> pa.Table:
    """Return `parts` as one table in which equal names have equal codes."""
    empty = arrow_schema(table).empty_table().select(list(columns))
    return pa.concat_tables([empty, *parts]).unify_dictionaries().combine_chunks()
