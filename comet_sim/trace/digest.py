"""Digest of a whole trace: equal for equal runs, whatever the machine, flush size or order of interning."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from comet_sim.trace.schema import SCHEMA_VERSION, TABLES, Table

__all__ = ["TableDigest", "combine"]

Rows = npt.NDArray[np.int64]
_BYTES = 16


class TableDigest:
    """Running digest of one table, fed with blocks of rows in the order they were recorded.

    A name enters by its text where it is first used, and by the number of that first use from then on, so
    the ids it was interned under do not matter. Tables are numbered apart from each other: how far one table
    has been flushed when another one is must not show.
    """

    __slots__ = ("_named", "_order", "_rows", "_seen", "_table", "_texts", "rows")

    def __init__(self, table: Table) -> None:
        self._table = table
        self._named = list(table.named)
        self._rows = blake2b(digest_size=_BYTES)
        self._texts = blake2b(digest_size=_BYTES)
        self._order = np.full(0, -1, dtype=np.int64)
        self._seen = 0
        self.rows = 0

    def update(self, rows: Rows, text: Callable[[int], str]) -> None:
        """Take `rows` (n, columns), whose names are looked up with `text`; `rows` is not changed."""
        ids = rows[:, self._named]
        largest = int(ids.max(initial=-1))
        if largest >= len(self._order):
            grown = np.full(2 * (largest + 1), -1, dtype=np.int64)
            grown[: len(self._order)] = self._order
            self._order = grown
        self._number_new(ids.ravel(), text)
        block = rows.astype("<i8", order="C", copy=True)
        block[:, self._named] = self._order[ids]
        self._rows.update(block.data)
        self.rows += len(rows)

    def _number_new(self, ids: Rows, text: Callable[[int], str]) -> None:
        unseen = ids[self._order[ids] < 0]
        if not unseen.size:
            return
        values, first = np.unique(unseen, return_index=True)
        values = values[np.argsort(first)]
        self._order[values] = np.arange(self._seen, self._seen + len(values))
        self._seen += len(values)
        for value in values.tolist():
            encoded = text(value).encode()
            self._texts.update(len(encoded).to_bytes(8, "little") + encoded)

    def digest(self) -> bytes:
        """Return the 16 bytes over all rows so far."""
        summary = blake2b(digest_size=_BYTES)
        summary.update(",".join(column.name for column in self._table.columns).encode())
        summary.update(self.rows.to_bytes(8, "little") + self._seen.to_bytes(8, "little"))
        summary.update(self._rows.digest() + self._texts.digest())
        return summary.digest()


def combine(digests: dict[str, TableDigest]) -> str:
    """Return the digest of a trace as 32 hex digits, from the digests of its tables by name."""
    whole = blake2b(f"comet-sim trace {SCHEMA_VERSION}".encode(), digest_size=_BYTES)
    for table in TABLES:
        whole.update(digests[table.name].digest())
    return whole.hexdigest()
