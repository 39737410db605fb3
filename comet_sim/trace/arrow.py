"""Blocks of integer rows to Arrow and back, and Arrow to Parquet: the one place that knows both layouts.

Everything here imports pyarrow; the recorder loads this module at its first flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comet_sim.trace.schema import PHASES, TABLES, Column, Table

__all__ = ["arrow_schema", "open_writer", "to_arrow", "to_rows"]

Rows = npt.NDArray[np.int64]

# The paths of a row group may take more than Parquet's default dictionary of 1 MiB, past which it would
# silently write every string out in full.
_DICTIONARY_LIMIT = 1 << 30
_TYPES = {
    "name": pa.dictionary(pa.int32(), pa.string()),
    "phase": pa.dictionary(pa.int8(), pa.string()),
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
}


def arrow_schema(table: Table) -> pa.Schema:
    """Return the columns of `table` as they are stored."""
    return pa.schema([pa.field(each.name, _TYPES[each.kind], nullable=False) for each in table.columns])


def to_arrow(table: Table, rows: Rows, texts: Sequence[str]) -> pa.Table:
    """Turn `rows` (n, columns) into Arrow, resolving names through `texts`.

    Raises `pyarrow.ArrowInvalid` when a value does not fit its column's width.
    """
    columns = np.ascontiguousarray(rows.T)
    arrays = [_array(column, columns[i], texts) for i, column in enumerate(table.columns)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))


def _array(column: Column, values: Rows, texts: Sequence[str]) -> pa.Array:
    if column.kind == "phase":
        return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int8)), pa.array(PHASES, pa.string()))
    if column.kind == "name":
        used, codes = np.unique(values, return_inverse=True)
        dictionary = pa.array([texts[i] for i in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), dictionary)
    return pa.array(values, _TYPES[column.kind])


def to_rows(table: Table, stored: pa.Table, names: dict[str, int]) -> Rows:
    """Undo `to_arrow`: return (n, columns) integers, interning texts into `names` as they are met.

    Raises `KeyError` for a phase this version does not know.
    """
    rows = np.empty((len(stored), len(table.columns)), dtype=np.int64)
    phases = {text: i for i, text in enumerate(PHASES)}
    at = 0
    for batch in stored.to_batches():
        block = rows[at : at + len(batch)]
        for i, column in enumerate(table.columns):
            values = batch.column(column.name)
            if column.kind in ("name", "phase"):
                texts = values.dictionary.to_pylist()
                if column.kind == "phase":
                    ids = [phases[text] for text in texts]
                else:
                    ids = [names.setdefault(text, len(names)) for text in texts]
                # An empty dictionary has no codes to look up, but indexing wants an integer array.
                block[:, i] = np.array(ids, dtype=np.int64)[values.indices.to_numpy()]
            else:
                block[:, i] = values.to_numpy()
        at += len(batch)
    return rows


def open_writer(table: Table, path: Path) -> pq.ParquetWriter:
    """Open `path` for writing with the encodings and compression of the trace format."""
    plain = {each.name: "DELTA_BINARY_PACKED" for each in table.columns if each.encoding == "delta"}
    return pq.ParquetWriter(
        path,
        arrow_schema(table),
        compression="zstd",
        use_dictionary=[each.name for each in table.columns if each.encoding == "dictionary"],
        column_encoding=plain,
        dictionary_pagesize_limit=_DICTIONARY_LIMIT,
    )


def empty(table: Table) -> pa.Table:
    """Return `table` without rows."""
    return arrow_schema(table).empty_table()


def table_named(name: str) -> Table:
    """Return the layout of the table called `name`."""
    return next(table for table in TABLES if table.name == name)
