"""A finished trace: its four tables as Arrow, read from a run folder or taken from a recorder in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comet_sim.errors import InputError
from comet_sim.events import Names
from comet_sim.trace.arrow import to_rows
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.digest import TableDigest, combine
from comet_sim.trace.filters import Filter
from comet_sim.trace.footer import open_file
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.schema import TABLES
from comet_sim.trace.sources import FileSource, KeptSource, PartSource, Source

__all__ = ["Trace"]

_DELIVERED = "delivered"
_LINK = ("src", "dst")
_PARTS = ("queued", "host", "stall", "serialise", "propagate")


class Trace:
    """The records of a run, a table each, read when first asked for.

    Columns are those of `comet_sim.events`, names and phases as dictionary-encoded text; `messages` has
    `delivered` besides. Rows are in the order they were recorded. What a file holds is compared with its page
    checksums whenever it is read; `verify` compares the whole trace with its digest.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
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
        self._whole_run: Trace | None = None

    @classmethod
    def load(cls, folder: Path | str) -> Trace:
        """Open the trace in `folder`; raises `InputError` naming the file that is missing or damaged."""
        folder = Path(folder)
        paths = {table.name: folder / f"{table.name}.parquet" for table in TABLES}
        files = {table.name: open_file(paths[table.name], table) for table in TABLES}
        first, _ = files[TABLES[0].name]
        for name, (footer, _) in files.items():
            if footer.digest != first.digest:
                raise InputError(
                    f"{paths[name]}: belongs to another run (digest {footer.digest}) than "
                    f"{paths[TABLES[0].name]} ({first.digest})"
                )
        sources = {table.name: FileSource(paths[table.name], table, files[table.name][1]) for table in TABLES}
        return cls(sources, digest=first.digest, metadata=first.run, version=first.version, where=str(folder))

    @classmethod
    def of(cls, recorder: Recorder) -> Trace:
        """Return the trace of `recorder`, from memory or from its folder; closes the recorder."""
        recorder.close()
        if recorder.folder is not None:
            return cls.load(recorder.folder)
        sources = {table.name: KeptSource(table, recorder.blocks(table.name)) for table in TABLES}
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
        return self._whole("messages")

    @cached_property
    def compute(self) -> pa.Table:
        """Spans of local work."""
        return self._whole("compute")

    @cached_property
    def reveals(self) -> pa.Table:
        """Opened values."""
        return self._whole("reveals")

    @cached_property
    def dealer(self) -> pa.Table:
        """Requests for correlated randomness."""
        return self._whole("dealer")

    def table(self, name: str) -> pa.Table:
        """Return one of the four tables by its name."""
        self._source(name)
        found: pa.Table = getattr(self, name)
        return found

    def read(self, name: str, columns: Sequence[str], blocks: Sequence[int]) -> pa.Table:
        """Return `columns` of the chosen blocks (numbers below `block_count`) of a table, and nothing else of it.

        A column is read anew each time: this is for those who go through a trace that memory may not hold.
        """
        source = self._source(name)
        if _DELIVERED not in columns:
            return source.read(columns, blocks)
        stored = [each for each in columns if each != _DELIVERED]
        table = source.read(list(dict.fromkeys((*stored, "created", *_PARTS))), blocks)
        return _with_delivered(table).select(list(columns))

    def blocks(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield `columns` of a table block after block, as they were recorded: 65,536 rows each or fewer."""
        for block in range(self.block_count(name)):
            yield self.read(name, columns, [block])

    def block_count(self, name: str) -> int:
        """Return how many blocks a table has."""
        return self._source(name).blocks

    def verify(self) -> None:
        """Recompute the digest from the tables and compare; raises `InputError` when they differ."""
        if self.digest is None:
            raise InputError(f"{self.where}: a filtered trace has no digest to verify")
        digests = {}
        for table in TABLES:
            digests[table.name] = TableDigest(table)
            names = Names()
            for block in self.blocks(table.name, [column.name for column in table.columns]):
                rows = to_rows(table, block, names)
                digests[table.name].update(rows, names.text)
        found = combine(digests)
        if found != self.digest:
            raise InputError(f"{self.where}: the records' digest is {found}, the files say {self.digest}")

    def select(self, filters: Filter) -> Trace:
        """Return the part of the trace that `filters` keeps."""
        if filters == Filter():
            return self
        self._check(filters)
        needed = {
            table.name: ("path", "phase", *(_LINK if table.name == "messages" else ())) for table in TABLES
        }
        sources = {
            name: PartSource(source, needed[name], partial(_filtered, filters))
            for name, source in self._sources.items()
        }
        part = Trace(sources, digest=None, metadata=self.metadata, version=self.version, where=self.where)
        part._whole_run = self
        return part

    @cached_property
    def parties(self) -> list[str]:
        """Names of all that send, receive or work in the run, sorted: also those a filter has left out."""
        if self._whole_run is not None:
            return self._whole_run.parties
        found: set[str] = set()
        for name, columns in (("messages", _LINK), ("compute", ("party",))):
            for block in self.blocks(name, columns):
                found.update(*(_used(block, column) for column in columns))
        return sorted(found)

    def _whole(self, name: str) -> pa.Table:
        columns = [column.name for table in TABLES if table.name == name for column in table.columns]
        table = self._source(name).read(columns, range(self.block_count(name)))
        return _with_delivered(table) if name == "messages" else table

    def _source(self, name: str) -> Source:
        if name not in self._sources:
            raise InputError(f"trace table {name!r}: accepted are {', '.join(self._sources)}")
        return self._sources[name]

    def _check(self, filters: Filter) -> None:
        for party in filters.link or ():
            if party not in self.parties:
                raise InputError(
                    f"link {'->'.join(filters.link or ())}: no party {party!r}; "
                    f"there are {', '.join(self.parties)}"
                )


def _with_delivered(messages: pa.Table) -> pa.Table:
    delivered = ints(messages, "created").copy()
    for part in _PARTS:
        delivered += ints(messages, part)
    return messages.append_column(_DELIVERED, pa.array(delivered))


def _used(table: pa.Table, column: str) -> list[str]:
    texts: list[str] = pc.unique(table[column]).dictionary_decode().to_pylist()
    return texts


def _filtered(filters: Filter, rows: pa.Table) -> pa.Table:
    keep = np.ones(len(rows), dtype=np.bool_)
    numbers, texts = codes(rows, "path")
    for pattern in filters.patterns():
        keep &= np.array(pattern.matches(texts), dtype=np.bool_)[numbers]
    wanted = [("phase", filters.phase)]
    if filters.link is not None:
        if "src" not in rows.column_names:
            return rows.slice(0, 0)
        wanted += zip(_LINK, filters.link, strict=True)
    for column, text in wanted:
        if text is not None:
            numbers, texts = codes(rows, column)
            keep &= np.array([each == text for each in texts], dtype=np.bool_)[numbers]
    return rows.filter(pa.array(keep))
