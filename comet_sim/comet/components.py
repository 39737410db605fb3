"""The bipartite graph of a mask: rows and columns are joined by the entries that are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

__all__ = ["Components", "active_columns", "active_rows", "components"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Components:
    """Connected components of a mask, largest first: rows, columns and wanted entries of each.

    Bytes of a product depend on the sums of rows and columns only; `blocks`, the entries of the blocks that
    components span, is what the servers compute.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    entries: int

    @property
    def count(self) -> int:
        """Number of components with an entry."""
        return len(self.rows)

    @property
    def blocks(self) -> int:
        """Entries of all blocks."""
        return sum(r * c for r, c in zip(self.rows, self.columns, strict=True))


def active_rows(mask: Mask) -> Mask:
    """Return which rows (m,) of a mask (m, n) have an entry."""
    return np.asarray(mask.any(1))


def active_columns(mask: Mask) -> Mask:
    """Return which columns (n,) of a mask (m, n) have an entry."""
    return np.asarray(mask.any(0))


def components(mask: Mask) -> Components:
    """Return the components of a mask (m, n) that have at least one entry."""
    rows, columns = active_rows(mask), active_columns(mask)
    row_count, column_count = int(rows.sum()), int(columns.sum())
    entries = int(np.count_nonzero(mask))
    if not entries:
        return Components((), (), 0)
    # One row or one column is one component; so is a full block.
    if row_count == 1 or column_count == 1 or entries == row_count * column_count:
        return Components((row_count,), (column_count,), entries)
    m, n = mask.shape
    at_row, at_column = np.nonzero(mask)
    graph = csr_matrix((np.ones(entries, np.int8), (at_row, at_column + m)), shape=(m + n, m + n))
    count, labels = connected_components(graph, directed=False)
    in_rows = np.bincount(labels[:m][rows], minlength=count)
    in_columns = np.bincount(labels[m:][columns], minlength=count)
    found = sorted(
        ((int(r), int(c)) for r, c in zip(in_rows, in_columns, strict=True) if r and c), reverse=True
    )
    return Components(tuple(r for r, _ in found), tuple(c for _, c in found), entries)
