"""The round table: one row an exchange, both directions side by side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from comet_sim.trace.columns import Ints, codes, group, ints, relabel, sums
from comet_sim.trace.filters import Filter
from comet_sim.trace.schema import PHASES
from comet_sim.trace.store import Trace

__all__ = ["round_table"]


def round_table(trace: Trace, filters: Filter | None = None) -> pa.Table:
    """Return one row for the messages of a pair of parties with the same phase, path and depth.

    Columns: phase, depth, path, left, right (the pair, in the order of their names), messages,
    bytes_to_right, bytes_to_left (payload), wire (both ways), start (first created), end (last delivered)
    and duration, ns. Rows are in the order of their start.
    """
    messages = (trace.select(filters) if filters else trace).messages
    numbers, texts = codes(messages, "phase")
    phase = np.array([PHASES.index(text) for text in texts], dtype=np.int64)[numbers]
    path, paths = codes(messages, "path")
    depth = ints(messages, "depth")
    src, sources = codes(messages, "src")
    dst, targets = codes(messages, "dst")
    both, parties = relabel(np.concatenate([src, dst + len(sources)]), sources + targets)
    src, dst = both[: len(src)], both[len(src) :]
    left, right = np.minimum(src, dst), np.maximum(src, dst)
    first, inverse = group(phase, path, depth, left, right)
    count = len(first)

    start = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(start, inverse, ints(messages, "created"))
    end = np.zeros(count, dtype=np.int64)
    np.maximum.at(end, inverse, ints(messages, "delivered"))
    payload = ints(messages, "payload")
    columns = {
        "phase": _text(phase[first], list(PHASES)),
        "depth": depth[first],
        "path": _text(path[first], paths),
        "left": _text(left[first], parties),
        "right": _text(right[first], parties),
        "messages": sums(inverse, count),
        "bytes_to_right": sums(inverse, count, np.where(src == left, payload, 0)),
        "bytes_to_left": sums(inverse, count, np.where(src == left, 0, payload)),
        "wire": sums(inverse, count, ints(messages, "wire")),
        "start": start,
        "end": end,
        "duration": end - start,
    }
    # Rounds that start together come in the order they were recorded, whatever numbers their names have.
    order = np.lexsort((first, start))
    return pa.table(columns).take(pa.array(order))


def _text(numbers: Ints, texts: list[str]) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), pa.array(texts, pa.string()))
