"""SIMM, the sparse-input product after a non-linearity: Y = H V where H is zero off a public mask.

Computed column of H by row of V, so that each weight row is sent at most once, and only if its column is
active. Source: paper; the opening of all of H is a reconstruction (off the mask it shows a single-use mask,
which hides nothing and needs no word to the dealer).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.selective import selective_matmul
from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.masking import Masked
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["simm", "simm_bytes"]

Mask = NDArray[np.bool_]


def simm_bytes(rows: int, inner: int, active: int, width: int) -> int:
    """Return the bytes a server sends for H (rows, inner) with `active` columns and V (inner, width)."""
    return WORD_BYTES * (rows * inner + active * width)


async def simm(
    s: Session, h: Any, v: Any, active: Mask, *, dealing: Literal["dense", "counts"] = "dense"
) -> Any:
    """Return h (m, n) times v (n, d); columns of h that are not `active` (n,) are zero at both servers.

    One round, 8 (mn + d active) bytes. `counts`: the dealer is told how many columns c are active, and
    8 (mc + dc) bytes are sent. Products keep both scales: truncate afterwards.
    """
    if dealing == "counts" and not isinstance(v, Masked):
        chosen = np.flatnonzero(active)
        return await matmul(s, s.ops.take(h, chosen, 1), s.ops.take(v, chosen, 0))
    m, n = h.shape
    width = v.shape[1]
    work = (m * n * width + m * int(active.sum()) * width) // 2
    return await selective_matmul(s, h, v, y_rows=active, work=work)
