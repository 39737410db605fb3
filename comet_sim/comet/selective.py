"""A product of shared matrices in which only some rows, or columns, are opened; SOMM and SIMM are made of it.

With a matrix triple C = A B and E = X - A, F = Y - B the product is C + E B + A F + E F. Leaving out a row of E
spoils that row of the product and nothing else; so does a column of F. A row of F may be left out where the
column of X is zero: E is then -A there, and C + E B is zero. Source: paper (SOMM, SIMM); reconstruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc.correlated import MASKED, MATMUL
from comet_sim.mpc.masking import Masked
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["opened_or_passed", "selective_matmul"]

Mask = NDArray[np.bool_]


async def opened_or_passed(s: Session, *shares: Any) -> tuple[Any, ...]:
    """Open shares; where there is nothing to open, pass the position, as the dealer does that knows no mask."""
    if shares:
        return await s.open(*shares)
    s.step += 1
    return ()


async def selective_matmul(
    s: Session,
    x: Any,
    y: Any,
    *,
    x_rows: Mask | None = None,
    y_columns: Mask | None = None,
    y_rows: Mask | None = None,
    work: int | None = None,
) -> Any:
    """Multiply x (..., m, k) by y (..., k, n), opening the rows of x and the columns or rows of y that masks name.

    Masks are public: `x_rows` (..., m), `y_columns` (..., n), `y_rows` (..., k); None: all. The randomness is the
    dense product's, so the dealer learns nothing of them. One round; 8 bytes an opened element; none if nothing is
    opened. `work`: ring multiply-adds of the blocks that are wanted (default: all). A y under a fixed mask is opened
    whole, once. The result is garbage outside the opened rows and columns.
    """
    ops = s.ops
    if isinstance(y, Masked):
        piece = s.correlated(MASKED, x.shape, y.ref())
        (a,) = piece.seeded
        pending = y.pending()
        sent_y = [] if pending is None else [pending]
    else:
        piece = s.correlated(MATMUL, x.shape, y.shape)
        a, b = piece.seeded
        # Columns are rows of the exchanged matrix, so that a mask over leading axes can pick them.
        hidden_y = (y - b).swapaxes(-1, -2) if y_columns is not None else y - b
        y_mask = y_columns if y_columns is not None else y_rows
        sent_y = [hidden_y if y_mask is None else ops.entries(hidden_y, y_mask)]
    sent_x = x - a if x_rows is None else ops.entries(x - a, x_rows)
    sent = [part for part in (sent_x, *sent_y) if part.size]
    opened = iter(await opened_or_passed(s, *sent))
    got_x = next(opened) if sent_x.size else sent_x
    e = got_x if x_rows is None else ops.spread(got_x, x_rows)
    got_y = [next(opened) if part.size else part for part in sent_y]
    if isinstance(y, Masked):
        if got_y:
            y.admit(s, got_y[0])
        b, f = y.operand(swapped=False)
    else:
        f = got_y[0] if y_mask is None else ops.spread(got_y[0], y_mask)
        f = f.swapaxes(-1, -2) if y_columns is not None else f
    c = await piece.corrected()
    s.charge(
        2 * (c.size * x.shape[-1] if work is None else work),
        WORD_BYTES * (2 * sent_x.size + 2 * sum(part.size for part in got_y) + 2 * c.size),
    )
    right = b + f if s.index == 0 else b
    return c + ops.matmul(e, right) + ops.matmul(a, f)
