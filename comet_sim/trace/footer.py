"""Opening a trace file: what its footer says of itself and of its run, checked before any row is read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from comet_sim.errors import InputError
from comet_sim.trace.arrow import arrow_schema
from comet_sim.trace.schema import FOOTER_KEY, SCHEMA_VERSION, TABLES, Table

__all__ = ["Footer", "open_file"]


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself and of the run it belongs to."""

    version: str
    rows: int
    digest: str
    run: dict[str, object]


def open_file(path: Path, table: Table) -> tuple[Footer, pq.ParquetFile]:
    """Open the file of `table`; raises `InputError` naming it when it is missing, damaged or something else.

    Reading its rows compares them with the checksums of their pages. The few bytes of page headers and of the
    footer have none: only the digest, which `Trace.verify` recomputes, covers what they say of the rows.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: {'is no file' if path.exists() else 'not found'}; "
            f"a trace is {', '.join(f'{each.name}.parquet' for each in TABLES)}"
        )
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a complete Parquet file ({error})") from error
    try:
        return _footer(path, table, file), file
    except BaseException:
        file.close(force=True)
        raise


def _footer(path: Path, table: Table, file: pq.ParquetFile) -> Footer:
    stored = (file.metadata.metadata or {}).get(FOOTER_KEY.encode())
    rows, schema = file.metadata.num_rows, file.schema_arrow
    if stored is None:
        raise InputError(f"{path}: a Parquet file, but not a trace of comet-sim")
    footer = _parse(stored)
    if footer.get("schema") != SCHEMA_VERSION:
        raise InputError(f"{path}: trace schema {footer.get('schema')}; this version reads {SCHEMA_VERSION}")
    missing = sorted({"table", "rows", "digest", "version", "run"} - footer.keys())
    if missing:
        raise InputError(f"{path}: the trace's footer lacks {', '.join(missing)}")
    if footer["table"] != table.name or not schema.remove_metadata().equals(arrow_schema(table)):
        raise InputError(
            f"{path}: holds the table {footer['table']!r} with other columns than {table.name!r} has"
        )
    if footer["rows"] != rows:
        raise InputError(f"{path}: {rows} rows, but {footer['rows']} were recorded")
    return Footer(footer["version"], rows, footer["digest"], footer["run"])


def _parse(stored: bytes) -> dict[str, Any]:
    """Return the footer's JSON object; an empty one when it is something else, which no schema accepts."""
    try:
        footer = json.loads(stored)
    except ValueError:
        return {}
    return footer if isinstance(footer, dict) else {}
