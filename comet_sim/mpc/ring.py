"""Arithmetic in Z_2^64 on int64 arrays: exact matrix products, fixed point and local truncation."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt

from comet_sim.errors import InputError

__all__ = ["FRACTION_BITS", "Ring", "decode", "encode", "matmul", "oversized", "truncate", "wrapped"]

FRACTION_BITS = 16

Ring = npt.NDArray[np.int64]
"""Elements of Z_2^64 in two's complement; numpy's int64 operators wrap as the ring does."""

Floats = npt.NDArray[np.float64]

_INT64 = np.dtype(np.int64)
_LIMB = 22
_HALF = np.int64(1 << (_LIMB - 1))
_MASK = np.int64((1 << _LIMB) - 1)
_BIAS = np.int64((1 << (_LIMB - 1)) + (1 << (2 * _LIMB - 1)))
_DEPTH = 1024  # terms of one float64 sum: 2 * 1024 products of at most 2^42 reach 2^53 and no more
_ROWS = 4096  # rows and right-hand elements worked on at a time: bounds the memory that limbs take
_TILE = 1 << 19
_CACHED = 1 << 16  # elements split at a time, so that temporaries stay in the second-level cache


def matmul(x: Ring, y: Ring) -> Ring:
    """Return x @ y mod 2^64, right to the last bit: (..., m, k) @ (..., k, n) -> (..., m, n), int64.

    Leading dimensions broadcast as in numpy. Raises InputError for other types and shapes.
    """
    left, right = x.shape, y.shape
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise InputError(f"ring product of shapes {left} and {right}; want (..., m, k) and (..., k, n)")
    if not (x.dtype == _INT64 == y.dtype):
        raise InputError(f"ring product of {x.dtype} and {y.dtype}; both operands must be int64")
    if len(right) == 2:
        if x.size <= 1024 and y.size <= 4096:  # a few microseconds: nothing beats the shortest way
            small: Ring = np.matmul(x, y)
            return small
        # One right operand for the whole batch: the batch is more rows.
        rows = x.reshape(prod(left[:-1]), left[-1])
        return _product(rows, y, 1).reshape(*left[:-1], right[-1])
    try:
        batch = prod(np.broadcast_shapes(left[:-2], right[:-2]))
    except ValueError as error:
        raise InputError(f"ring product of shapes {left} and {right}; leading ones differ") from error
    return _product(x, y, batch)


def _product(x: Ring, y: Ring, batch: int) -> Ring:
    """Multiply by whichever way is fastest for the shape; all give the same bits."""
    m, k = x.shape[-2:]
    n = y.shape[-1]
    # Tenths of a nanosecond, measured with one thread: integers pay 6 a product term; limbs pay 2.5 a term,
    # 80 to split and read an element, 60 to combine a result, and a fixed sum.
    if batch * (7 * m * k * n // 2 - 80 * k * (m + n) - 60 * m * n) > 200_000:
        return _limb_matmul(x, y)
    # matmul walks down the columns of y, good while y fits the first-level cache. einsum walks along memory
    # and may return any layout; to ask it for one would make it walk in that order.
    small = n < 16 or k * n <= 4096
    result: Ring = np.matmul(x, y) if small else np.einsum("...mk,...kn->...mn", x, y)
    return np.ascontiguousarray(result)


def _limb_matmul(x: Ring, y: Ring) -> Ring:
    """Multiply by three balanced limbs of 22 bits in float64, where BLAS is exact.

    x = x0 + 2^22 x1 + 2^44 x2, so x y = x0 y0 + 2^22 (x0 y1 + x1 y0) + 2^44 (x0 y2 + x1 y1 + x2 y0) mod 2^64.
    With [x0 x1 x2] side by side and y2 on top of y1 and y0, each bracket is one product of adjoining blocks.
    """
    m, k = x.shape[-2:]
    n = y.shape[-1]
    depth = min(k, _DEPTH)
    width = min(n, max(64, _TILE // (depth * prod(y.shape[:-2]))))
    left = _room(x, min(m, _ROWS), 3 * depth)
    right = _room(y, 3 * depth, width)
    out = np.zeros((*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), m, n), dtype=np.int64)
    for top, start in product(range(0, m, _ROWS), range(0, k, depth)):
        rows = x[..., top : top + _ROWS, start : start + depth]
        w = rows.shape[-1]
        wide = left[..., : rows.shape[-2], : 3 * w]
        _split(rows, wide[..., :w], wide[..., w : 2 * w], wide[..., 2 * w :])
        for first in range(0, n, width):
            columns = y[..., start : start + depth, first : first + width]
            tall = right[..., : 3 * w, : columns.shape[-1]]
            _split(columns, tall[..., 2 * w :, :], tall[..., w : 2 * w, :], tall[..., :w, :])
            out[..., top : top + _ROWS, first : first + width] += _combine(wide, tall, w)
    return out


def _room(like: Ring, rows: int, columns: int) -> Floats:
    """Return room for the limbs of `like`, stored by rows or by columns as it is: BLAS takes both."""
    if _by_columns(like):
        return np.empty((*like.shape[:-2], columns, rows)).swapaxes(-1, -2)
    return np.empty((*like.shape[:-2], rows, columns))


def _by_columns(x: Ring) -> bool:
    return abs(x.strides[-2]) < abs(x.strides[-1])


def _split(x: Ring, low: Floats, mid: Floats, high: Floats) -> None:
    """Write the limbs of x: low and mid in [-2^21, 2^21), high in [-2^19, 2^19)."""
    if _by_columns(x):
        x, low = x.swapaxes(-1, -2), low.swapaxes(-1, -2)
        mid, high = mid.swapaxes(-1, -2), high.swapaxes(-1, -2)
    step = max(1, _CACHED * x.shape[-2] // x.size)
    for start in range(0, x.shape[-2], step):
        at = (..., slice(start, start + step), slice(None))
        rest = x[at] + _BIAS
        limb = rest & _MASK
        limb -= _HALF
        low[at] = limb
        rest >>= _LIMB
        np.bitwise_and(rest, _MASK, out=limb)
        limb -= _HALF
        mid[at] = limb
        rest >>= _LIMB
        high[at] = rest


def _combine(wide: Floats, tall: Floats, w: int) -> Ring:
    """Return the ring product of operands given by their limbs, each w wide.

    Every sum is exact in any order of addition: its partial sums are integers of at most 2^53, namely
    w 2^42, 2w 2^42 and w (2^42 + 2 * 2^40).
    """
    total: Ring = np.matmul(wide, tall).astype(np.int64)
    total <<= _LIMB
    total += np.matmul(wide[..., : 2 * w], tall[..., w:, :]).astype(np.int64)
    total <<= _LIMB
    total += np.matmul(wide[..., :w], tall[..., 2 * w :, :]).astype(np.int64)
    return total


def encode(values: npt.ArrayLike, f: int = FRACTION_BITS) -> Ring:
    """Return real `values` in fixed point with f fractional bits, rounded half to even, same shape, int64.

    Raises InputError for values that are not finite or do not fit 64 bits.
    """
    given = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        scaled = np.asarray(np.rint(given * 2.0**f))
    # Both ends are powers of two, so this comparison is exact; it is false for NaN.
    good = (scaled >= -(2.0**63)) & (scaled < 2.0**63)
    if not good.all():
        bad = given[~good][0]
        raise InputError(
            f"fixed point with {f} fractional bits cannot hold {bad}; want -2^{63 - f} <= x < 2^{63 - f}"
        )
    return scaled.astype(np.int64)


def decode(x: Ring, f: int = FRACTION_BITS) -> Floats:
    """Return the reals that fixed-point elements x stand for, same shape, float64 (rounded above 53 bits)."""
    return np.asarray(x * 2.0**-f, dtype=np.float64)


def truncate(share: Ring, f: int, party: int) -> Ring:
    """Divide a shared value by 2^f on one's own share, party 0 or 1: SecureML's local truncation.

    The opened result is off by at most one unit, unless the two shares wrapped (see `wrapped`): then it is
    wrong by 2^(64-f). Source: Mohassel and Zhang, SecureML, IEEE S&P 2017, section 4.1.
    """
    if party == 0:
        return share >> f
    if party != 1:
        raise InputError(f"truncation by party {party}; local truncation is between parties 0 and 1")
    return -((-share) >> f)


def wrapped(x0: Ring, x1: Ring) -> int:
    """Count elements that local truncation breaks: the signed shares sum outside 64 bits.

    For an auditor that sees both shares; no party can compute it.
    """
    # Party 1 shifts -x1, which turns a share of -2^63 into +2^63: so the difference from -x1 has to fit.
    minus = -x1
    total = x0 - minus
    return int(np.count_nonzero(((x0 ^ minus) & (x0 ^ total)) < 0))


def oversized(x: Ring) -> int:
    """Count elements outside [-2^62, 2^62), which interactive truncation breaks: for an auditor."""
    return int(np.count_nonzero((x ^ (x << 1)) < 0))
