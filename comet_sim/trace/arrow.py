"""Blocks of integer rows to Arrow and back, and Arrow to Parquet: the one place that knows both layouts.

Everything here imports pyarrow; the recorder loads this module at its first flush.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comet_sim.events import Names
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.schema import PHASES, Column, Table, phase_name

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


def to_arrow(table: Table, rows: Rows, text: Callable[[int], str]) -> pa.Table:
    """Turn `rows` (n, columns) into Arrow, resolving names with `text`.

    Raises `pyarrow.ArrowInvalid` when a value does not fit its column's width.
    """
    columns = np.ascontiguousarray(rows.T)
    arrays = [_array(column, columns[i], text) for i, column in enumerate(table.columns)]
    return pa.Table.from_arrays(arrays, schema=arrow_schema(table))


def _array(column: Column, values: Rows, text: Callable[[int], str]) -> pa.Array:
    if column.kind == "phase":
        return pa.DictionaryArray.from_arrays(pa.array(values.astype(np.int8)), pa.array(PHASES, pa.string()))
    if column.kind == "name":
        used, codes = np.unique(values, return_inverse=True)
        dictionary = pa.array([text(i) for i in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), dictionary)
    return pa.array(values, _TYPES[column.kind])


def to_rows(table: Table, stored: pa.Table, names: Names) -> Rows:
    """Undo `to_arrow`: return rows (n, columns), their names interned in `names`.

    `stored` has one dictionary a column. Raises `InputError` for a phase this version does not know.
    """
    columns = []
    for column in table.columns:
        if column.kind in ("name", "phase"):
            numbers, texts = codes(stored, column.name)
            of = _phase if column.kind == "phase" else names.intern
            columns.append(np.array([of(text) for text in texts], dtype=np.int64)[numbers])
        else:
            columns.append(ints(stored, column.name))
    return np.stack(columns, axis=1)


def _phase(text: str) -> int:
    return PHASES.index(phase_name(text))


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
        write_page_checksum=True,
    )
