"""A finished trace: its four tables as Arrow, read from a run folder or taken from a recorder in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comet_sim.errors import InputError
from comet_sim.trace.arrow import arrow_schema, to_rows
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.digest import TableDigest, combine
from comet_sim.trace.filters import Filter
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.schema import FOOTER_KEY, PHASES, SCHEMA_VERSION, TABLES, Table

__all__ = ["Trace"]

_PARTS = ("queued", "host", "stall", "serialise", "propagate")


@dataclass(frozen=True, slots=True)
class _Footer:
    """What a file says of itself and of the run it belongs to."""

    version: str
    rows: int
    digest: str
    run: dict[str, object]


class Trace:
    """The records of a run, a table each, read when first asked for.

    Columns are those of `comet_sim.events`, names and phases as dictionary-encoded text; `messages` has
    `delivered` besides. Rows are in the order they were recorded.
    """

    def __init__(
        self,
        sources: Mapping[str, Callable[[], pa.Table]],
        *,
        digest: str | None,
        metadata: Mapping[str, object],
        version: str,
        where: str,
    ) -> None:
        self.digest = digest
        """Digest of the whole trace, or None for a part of one."""
        self.metadata = dict(metadata)
        """What the run said of itself."""
        self.version = version
        """Version of comet-sim that wrote the trace."""
        self.where = where
        """Where the trace came from, for messages to people."""
        self._sources = sources

    @classmethod
    def load(cls, folder: Path | str) -> Trace:
        """Open the trace in `folder`; raises `InputError` naming the file that is missing or damaged."""
        folder = Path(folder)
        paths = {table.name: folder / f"{table.name}.parquet" for table in TABLES}
        footers = {table.name: _read_footer(paths[table.name], table) for table in TABLES}
        first = footers[TABLES[0].name]
        for name, footer in footers.items():
            if footer.digest != first.digest:
                raise InputError(
                    f"{paths[name]}: belongs to another run (digest {footer.digest}) than "
                    f"{paths[TABLES[0].name]} ({first.digest})"
                )
        sources = {table.name: partial(_read, paths[table.name], table) for table in TABLES}
        return cls(sources, digest=first.digest, metadata=first.run, version=first.version, where=str(folder))

    @classmethod
    def of(cls, recorder: Recorder) -> Trace:
        """Return the trace of `recorder`, from memory or from its folder; closes the recorder."""
        recorder.close()
        if recorder.folder is not None:
            return cls.load(recorder.folder)
        sources = {table.name: partial(_gather, table, recorder.blocks(table.name)) for table in TABLES}
        return cls(
            sources,
            digest=recorder.digest,
            metadata=recorder.metadata,
            version=recorder.version,
            where="memory",
        )

    @cached_property
    def messages(self) -> pa.Table:
        """Messages, with the time of delivery in `delivered`."""
        table = self._sources["messages"]()
        if "delivered" in table.column_names:
            return table
        delivered = ints(table, "created").copy()
        for part in _PARTS:
            delivered += ints(table, part)
        return table.append_column("delivered", pa.array(delivered))

    @cached_property
    def compute(self) -> pa.Table:
        """Spans of local work."""
        return self._sources["compute"]()

    @cached_property
    def reveals(self) -> pa.Table:
        """Opened values."""
        return self._sources["reveals"]()

    @cached_property
    def dealer(self) -> pa.Table:
        """Requests for correlated randomness."""
        return self._sources["dealer"]()

    def table(self, name: str) -> pa.Table:
        """Return one of the four tables by its name."""
        if name not in self._sources:
            raise InputError(f"trace table {name!r}: accepted are {', '.join(self._sources)}")
        found: pa.Table = getattr(self, name)
        return found

    def verify(self) -> None:
        """Recompute the digest from the tables and compare; raises `InputError` when they differ."""
        if self.digest is None:
            raise InputError(f"{self.where}: a filtered trace has no digest to verify")
        digests = {}
        for table in TABLES:
            digests[table.name] = TableDigest(table)
            blocks, texts = to_rows(table, self.table(table.name))
            for block in blocks:
                digests[table.name].update(block, texts.__getitem__)
        found = combine(digests)
        if found != self.digest:
            raise InputError(f"{self.where}: the records' digest is {found}, the files say {self.digest}")

    def select(self, filters: Filter) -> Trace:
        """Return the part of the trace that `filters` keeps."""
        if filters == Filter():
            return self
        _check(filters, self)
        sources = {table.name: partial(_filtered, self, table, filters) for table in TABLES}
        return Trace(sources, digest=None, metadata=self.metadata, version=self.version, where=self.where)


def _check(filters: Filter, trace: Trace) -> None:
    if filters.phase is not None and filters.phase not in PHASES:
        raise InputError(f"phase {filters.phase!r}: accepted are {', '.join(PHASES)}")
    if filters.link is not None:
        known = sorted({party for end in ("src", "dst") for party in codes(trace.messages, end)[1]})
        for party in filters.link:
            if party not in known:
                raise InputError(
                    f"link {'->'.join(filters.link)}: no party {party!r}; there are {', '.join(known)}"
                )


def _filtered(trace: Trace, table: Table, filters: Filter) -> pa.Table:
    rows = trace.table(table.name)
    keep = np.ones(len(rows), dtype=np.bool_)
    numbers, texts = codes(rows, "path")
    for pattern in filters.patterns():
        keep &= np.array(pattern.matches(texts), dtype=np.bool_)[numbers]
    wanted = [("phase", filters.phase)]
    if filters.link is not None:
        if table.name != "messages":
            return rows.slice(0, 0)
        wanted += [("src", filters.link[0]), ("dst", filters.link[1])]
    for column, text in wanted:
        if text is not None:
            numbers, texts = codes(rows, column)
            keep &= np.array([each == text for each in texts], dtype=np.bool_)[numbers]
    return rows.filter(pa.array(keep))


def _gather(table: Table, blocks: list[pa.Table]) -> pa.Table:
    # One dictionary a column, so that equal names have equal codes in all blocks.
    whole = pa.concat_tables([arrow_schema(table).empty_table(), *blocks]).unify_dictionaries()
    return whole.combine_chunks()


def _read(path: Path, table: Table) -> pa.Table:
    try:
        stored = pq.read_table(path, memory_map=False).replace_schema_metadata(None)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: damaged, cannot be read ({error})") from error
    return _gather(table, [stored])


def _read_footer(path: Path, table: Table) -> _Footer:
    if not path.is_file():
        raise InputError(
            f"{path}: not found; a run folder has {', '.join(f'{each.name}.parquet' for each in TABLES)}"
        )
    try:
        with pq.ParquetFile(path) as file:
            stored = (file.metadata.metadata or {}).get(FOOTER_KEY.encode())
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: not a complete Parquet file ({error})") from error
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
    return _Footer(footer["version"], rows, footer["digest"], footer["run"])


def _parse(stored: bytes) -> dict[str, Any]:
    """Return the footer's JSON object; an empty one when it is something else, which no schema accepts."""
    try:
        footer = json.loads(stored)
    except ValueError:
        return {}
    return footer if isinstance(footer, dict) else {}
