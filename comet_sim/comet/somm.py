"""SOMM, the sparse-output product before a non-linearity: only wanted entries of X Y are made.

Wanted entries join rows of X and columns of Y in a bipartite graph. Each row and each column is masked and
sent once, whatever the components are: 8k (rows + columns) bytes. What it is compared with, dense, entry by
entry and row by row, is here too. Source: paper; dense dealing is a reconstruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.components import Components, active_columns, active_rows, components
from comet_sim.comet.selective import opened_or_passed, selective_matmul
from comet_sim.comet.settings import Linear
from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.correlated import MATMUL
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["somm", "somm_bytes"]

Mask = NDArray[np.bool_]


def somm_bytes(mask: Mask, inner: int) -> int:
    """Return the bytes a server sends for a mask (m, n) over blocks of equal width and inner width k."""
    return WORD_BYTES * inner * int(active_rows(mask).sum() + active_columns(mask).sum())


async def somm(s: Session, x: Any, y: Any, mask: Mask, *, way: Linear = "somm") -> tuple[Any, Components]:
    """Return x (m, k) times y (k, n) where the public mask (m, n) holds and zero elsewhere, and the components.

    One round and, by `way`: `somm` 8k (active rows + active columns) bytes, `dense` 8k (m + n), `per-entry` 16k a
    wanted entry, `row-wise` 8k (1 + wanted columns) a row. Products keep both scales: truncate afterwards.
    """
    found = components(mask)
    if way == "dense":
        product = await matmul(s, x, y)
    elif way == "per-entry":
        return await _entry_by_entry(s, x, y, mask), found
    elif way == "row-wise":
        product = await _row_by_row(s, x, y, mask)
    else:
        product = await selective_matmul(
            s, x, y, x_rows=active_rows(mask), y_columns=active_columns(mask), work=found.blocks * x.shape[1]
        )
    return s.ops.select(product, mask, 0), found


async def _row_by_row(s: Session, x: Any, y: Any, mask: Mask) -> Any:
    """Each row with the columns it wants, under masks of its own: the weights are sent again for each row."""
    m, n = mask.shape
    many = s.ops.stack([y] * m)
    wanted = int(np.count_nonzero(mask)) * x.shape[1]
    product = await selective_matmul(
        s, x[:, None, :], many, x_rows=active_rows(mask)[:, None], y_columns=mask, work=wanted
    )
    return product.reshape((m, n))


async def _entry_by_entry(s: Session, x: Any, y: Any, mask: Mask) -> Any:
    """One dot product a wanted entry, each with both its vectors sent."""
    m, n = mask.shape
    inner = x.shape[1]
    rows, columns = np.nonzero(mask)
    piece = s.correlated(MATMUL, (m * n, 1, inner), (m * n, inner, 1))
    count = len(rows)
    a, b = (part[:count] for part in piece.seeded)
    left = s.ops.take(x, rows, 0).reshape((count, 1, inner))
    right = s.ops.take(y, columns, 1).swapaxes(0, 1).reshape((count, inner, 1))
    e, f = await opened_or_passed(s, *((left - a, right - b) if count else ())) or (left, right)
    c = (await piece.corrected())[:count]
    s.charge(2 * count * inner, WORD_BYTES * (4 * count * inner + 2 * count))
    product = c + s.ops.matmul(e, b + f if s.index == 0 else b) + s.ops.matmul(a, f)
    return s.ops.spread(product.reshape((count,)), mask)
