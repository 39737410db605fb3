"""The recorder: keeps the records of a run as packed integers and streams them to Parquet in blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata as packages
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from comet_sim.events import Compute, DealerRequest, Message, Names, Observer, Reveal
from comet_sim.trace.digest import TableDigest, combine
from comet_sim.trace.schema import FOOTER_KEY, SCHEMA_VERSION, TABLES, Table

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["Recorder"]

# Little endian everywhere, so that the bytes kept are the bytes hashed. Packing a record costs less than half
# of extending an `array` with it (380 against 850 ns a message).
_PACKERS = tuple(Struct(f"<{len(table.columns)}q") for table in TABLES)
_pack_message, _pack_compute, _pack_reveal, _pack_dealer = (packer.pack for packer in _PACKERS)


class Recorder(Observer):
    """Observer that stores a run: in `folder` as Parquet files or, without a folder, in memory as Arrow.

    At most `rows_per_block` rows of a table wait to be written, so memory stays bounded when streaming. Files
    carry the suffix `.partial` until `close` renames them; `abort` removes them.
    """

    def __init__(
        self,
        names: Names,
        folder: Path | None,
        *,
        metadata: Mapping[str, object] | None = None,
        rows_per_block: int = 65_536,
    ) -> None:
        self.metadata: dict[str, object] = dict(metadata or {})
        """What is known of the run, as JSON values; may be added to until `close`."""
        self.digest: str | None = None
        """Digest of the whole trace, 32 hex digits, once closed."""
        self.version = _package_version()
        """Version of comet-sim that records."""
        self.folder = folder
        """Where the files go, or None for a trace in memory."""
        self._streams = tuple(_Stream(table, names, folder) for table in TABLES)
        self._limits = [rows_per_block * packer.size for packer in _PACKERS]
        self._message_limit = self._limits[0]
        self._waiting = [bytearray() for _ in TABLES]
        # The messages' bytes apart from the list: they are far the most, and this is the hot path.
        self._messages = bytearray()

    def message(self, record: Message) -> None:
        """Append a delivered message."""
        self._messages += _pack_message(*record)
        if len(self._messages) >= self._message_limit:
            self._flush_messages()

    def compute(self, record: Compute) -> None:
        """Append a finished span of local work."""
        self._append(1, _pack_compute(*record))

    def reveal(self, record: Reveal) -> None:
        """Append an opened value."""
        self._append(2, _pack_reveal(*record))

    def dealer_request(self, record: DealerRequest) -> None:
        """Append a piece of correlated randomness."""
        self._append(3, _pack_dealer(*record))

    def close(self) -> None:
        """Write what waits, seal the files with the digest and give them their final names."""
        if self.digest is not None:
            return
        try:
            self._flush_messages()
            for stream, rows in zip(self._streams, self._waiting, strict=True):
                stream.write(rows)
            self._waiting = [bytearray() for _ in TABLES]
            digest = combine({stream.table.name: stream.digest for stream in self._streams})
            for stream in self._streams:
                stream.seal(self._footer(stream, digest))
            for stream in self._streams:
                stream.publish()
        except BaseException:
            self.abort()
            raise
        self.digest = digest

    def abort(self) -> None:
        """Forget the run: remove the unfinished files."""
        for stream in self._streams:
            stream.discard()

    def blocks(self, table: str) -> list[pa.Table]:
        """Return what is kept in memory of the table called `table`: nothing when streaming to a folder."""
        return next(stream.blocks for stream in self._streams if stream.table.name == table)

    def rows(self, table: str) -> int:
        """Return how many rows of the table called `table` have been flushed; all of them once closed."""
        return next(stream.digest.rows for stream in self._streams if stream.table.name == table)

    def _append(self, index: int, packed: bytes) -> None:
        waiting = self._waiting[index]
        waiting += packed
        if len(waiting) >= self._limits[index]:
            self._waiting[index] = bytearray()
            self._streams[index].write(waiting)

    def _flush_messages(self) -> None:
        rows, self._messages = self._messages, bytearray()
        self._streams[0].write(rows)

    def _footer(self, stream: _Stream, digest: str) -> str:
        footer = {
            "schema": SCHEMA_VERSION,
            "version": self.version,
            "table": stream.table.name,
            "rows": stream.digest.rows,
            "digest": digest,
            "run": self.metadata,
        }
        return json.dumps(footer, sort_keys=True, allow_nan=False)


class _Stream:
    """Where one table goes: hashed, then written to its file or kept."""

    def __init__(self, table: Table, names: Names, folder: Path | None) -> None:
        self.table = table
        self.digest = TableDigest(table)
        self.blocks: list[pa.Table] = []
        self._names = names
        self._final = folder / f"{table.name}.parquet" if folder else None
        self._partial = folder / f"{table.name}.parquet.partial" if folder else None
        self._writer: pq.ParquetWriter | None = None

    def write(self, packed: bytearray) -> None:
        if not packed:
            return
        from comet_sim.trace.arrow import to_arrow

        stored = np.frombuffer(packed, dtype="<i8").reshape(-1, len(self.table.columns))
        rows = stored.astype(np.int64, copy=False)
        self.digest.update(rows, self._names.text)
        block = to_arrow(self.table, rows, self._names.text)
        if self._partial is None:
            self.blocks.append(block)
        else:
            self._open(self._partial).write_table(block, row_group_size=len(block))

    def seal(self, footer: str) -> None:
        if self._partial is not None:
            writer = self._open(self._partial)
            writer.add_key_value_metadata({FOOTER_KEY: footer})
            writer.close()

    def publish(self) -> None:
        if self._partial is not None and self._final is not None:
            self._partial.replace(self._final)

    def discard(self) -> None:
        self.blocks.clear()
        if self._writer is not None:
            # On a full disk closing fails as well; the file goes either way.
            with suppress(OSError):
                self._writer.close()
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)

    def _open(self, path: Path) -> pq.ParquetWriter:
        if self._writer is None:
            from comet_sim.trace.arrow import open_writer

            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = open_writer(self.table, path)
        return self._writer


def _package_version() -> str:
    try:
        return packages.version("comet-sim")
    except packages.PackageNotFoundError:
        return "source"
