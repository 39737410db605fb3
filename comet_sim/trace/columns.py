"""Arrow columns as numpy arrays, and exact sums over groups of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Ints", "codes", "distinct", "group", "ints", "relabel", "sums"]

Ints = npt.NDArray[np.int64]

_LARGEST = 1 << 62
_FEW = 1 << 12


def ints(table: pa.Table, column: str) -> Ints:
    """Return an integer column as int64 (rows,)."""
    values: Ints = table[column].to_numpy().astype(np.int64, copy=False)
    return values


def codes(table: pa.Table, column: str) -> tuple[Ints, list[str]]:
    """Return a text column as (numbers (rows,), texts), where `texts[numbers[i]]` is the text of row i."""
    values = table[column].combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # what older Arrow returns
        values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    numbers: Ints = values.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, values.dictionary.to_pylist()


def relabel(numbers: Ints, labels: Sequence[str]) -> tuple[Ints, list[str]]:
    """Give rows whose number has an equal label one number, in the order of the sorted labels."""
    texts = sorted(set(labels))
    place = {text: i for i, text in enumerate(texts)}
    new = np.array([place[label] for label in labels], dtype=np.int64)
    return new[numbers], texts


def distinct(values: Ints) -> Ints:
    """Return each value once, sorted: for millions of numbers that come nearly sorted, faster than numpy's."""
    ordered = np.sort(values)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if ordered.size else ordered


def group(*keys: Ints) -> tuple[Ints, Ints]:
    """Group rows by equal `keys`, each non-negative (rows,).

    Returns (first, inverse): the first row of each group, groups in the order of the keys, and the group of
    each row.
    """
    whole = keys[0]
    span = int(whole.max(initial=0)) + 1
    for key in keys[1:]:
        more = int(key.max(initial=0)) + 1
        if span * more > _LARGEST:
            # Renumbering first keeps the product of the ranges within 64 bits for any number of keys.
            names, whole = np.unique(whole, return_inverse=True)
            span = len(names)
        whole = whole * more + key
        span *= more
    rows = len(whole)
    if span > 4 * rows + _FEW:
        _, first, inverse = np.unique(whole, return_index=True, return_inverse=True)
        return first.astype(np.int64), inverse.astype(np.int64)
    # A table of all keys there could be saves sorting the rows.
    at = np.full(span, -1, dtype=np.int64)
    at[whole[::-1]] = np.arange(rows - 1, -1, -1)  # of equal keys the one written last stays: the first row
    used = np.flatnonzero(at >= 0)
    first = at[used]
    at[used] = np.arange(len(used))
    return first, at[whole]


def sums(inverse: Ints, groups: int, values: Ints | None = None) -> Ints:
    """Return the exact sum of `values` (or the count of rows when None) in each of `groups` groups."""
    if values is None:
        return np.bincount(inverse, minlength=groups).astype(np.int64)
    total = np.zeros(groups, dtype=np.int64)
    np.add.at(total, inverse, values)
    return total
