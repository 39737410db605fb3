"""Indexing under MPC: active neurons' weights gathered with nobody learning which, what indexing by shuffle replaces.

Two natural ways. `one-hot`: each neuron's rank among the active ones becomes a one-hot row by a demultiplexer, and
the matrix of them times the weights is the selection (Keller and Scholl 2014; Launchbury and others 2012).
`compaction`: active rows move up over the inactive ones in log n conditional steps of a butterfly network (Goodrich
2011). Neither opens anything; how many neurons fit is public.
"""

from __future__ import annotations

from typing import Any, Literal

from comet_sim.mpc.beaver import bits_to_arithmetic, matmul, multiply
from comet_sim.mpc.compare import arithmetic_to_bits
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Variants
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["Selection", "select_active", "selection_bytes", "selection_rounds"]

Selection = Literal["one-hot", "compaction"]


def _digits(largest: int) -> int:
    """Return how many binary digits numbers up to the largest have: at least one."""
    return max(1, largest.bit_length())


def _pairs(widths: list[int]) -> list[list[int]]:
    """Return widths of one-hot parts, level by level, as neighbours are joined until one is left."""
    levels = [widths]
    while len(widths) > 1:
        joined = [a * b for a, b in zip(widths[::2], widths[1::2], strict=False)]
        widths = joined + widths[2 * len(joined) :]
        levels.append(widths)
    return levels


def selection_bytes(way: Selection, n: int, width: int, room: int) -> int:
    """Return the bytes a server sends to select at most `room` of n rows of a table (n, width)."""
    if way == "one-hot":
        digits = _digits(room - 1)
        demux = sum(sum(level[: len(level) // 2 * 2]) for level in _pairs([1] + [2] * digits)[:-1])
        return n * (8 + 208 + WORD_BYTES * (digits + demux + room + width))
    digits = _digits(n - 1)
    steps = sum(1 + width + later for later in range(digits))
    return n * (8 + 208 + WORD_BYTES * (digits + 1 + width + digits + steps))


def selection_rounds(way: Selection, n: int, room: int) -> int:
    """Return the rounds of a selection."""
    digits = _digits(room - 1 if way == "one-hot" else n - 1)
    return 9 + (len(_pairs([1] + [2] * digits)) if way == "one-hot" else 1 + digits)


async def select_active(
    s: Session, bits: Any, table: Any, room: int, way: Selection = "one-hot", v: Variants = CRYPTEN_WAY
) -> Any:
    """Return the rows of a shared table (n, w) whose bit (n,), XOR-shared, is one: (room, w), in order, then zeros.

    `selection_bytes` bytes, `selection_rounds` rounds. With more active rows than room the result is garbage.
    Raises ValueError for a room outside 1 to n.
    """
    n = bits.shape[0]
    if not 1 <= room <= n:
        raise ValueError(f"room for {room} of {n} rows; accepted: 1 to {n}")
    ones = await bits_to_arithmetic(s, bits)
    if way == "one-hot":
        onehot = await _one_hot(s, ones, room, v)
        return await matmul(s, onehot.swapaxes(0, 1), table)
    return (await _compacted(s, ones, table, v))[:room]


async def _binary(s: Session, numbers: Any, digits: int, v: Variants) -> Any:
    """Return the lowest binary digits (digits, n) of shared numbers, as shares of 0 or 1: 8 rounds."""
    words = await arithmetic_to_bits(s, numbers, v)
    s.charge(0, WORD_BYTES * 2 * digits * numbers.size)
    return await bits_to_arithmetic(s, s.ops.stack([(words >> digit) & 1 for digit in range(digits)]))


async def _one_hot(s: Session, ones: Any, room: int, v: Variants) -> Any:
    """Return (n, room): row j is one at j's rank among the active ones, and zero if j is not active."""
    n = ones.shape[0]
    rank = s.add_public(s.ops.cumsum(ones, 0), -1)
    digits = await _binary(s, rank, _digits(room - 1), v)
    parts = [ones.reshape((n, 1))]
    for digit in range(digits.shape[0]):
        high = digits[digit].reshape((n, 1))
        parts.append(s.ops.concat([s.add_public(-high, 1), high], 1))
    with s.scope("demux"):
        while len(parts) > 1:
            pairs = list(zip(parts[::2], parts[1::2], strict=False))
            parts = [*await _products(s, pairs), *parts[2 * len(pairs) :]]
    return parts[0][:, :room]


async def _products(s: Session, pairs: list[tuple[Any, Any]]) -> list[Any]:
    """Join one-hot parts (n, A) of low digits and (n, B) of high ones to (n, AB), all in one round."""

    async def join(child: Session, low: Any, high: Any) -> Any:
        n, wide, tall = low.shape[0], low.shape[1], high.shape[1]
        both = await multiply(child, high.reshape((n, tall, 1)), low.reshape((n, 1, wide)))
        return both.reshape((n, tall * wide))

    if len(pairs) == 1:
        return [await join(s, *pairs[0])]
    return list(
        await s.gather(*(lambda child, low=low, high=high: join(child, low, high) for low, high in pairs))
    )


async def _compacted(s: Session, ones: Any, table: Any, v: Variants) -> Any:
    """Return the table with active rows at the top: each step moves those up by 2^i whose distance has that digit."""
    ops, n = s.ops, ones.shape[0]
    distance = ops.cumsum(s.add_public(-ones, 1), 0)
    digits = await _binary(s, distance, _digits(n - 1), v)
    # What is still to be gone travels with a row; rows that are not active become zero and stay.
    rows = ops.concat([digits.swapaxes(0, 1), table], 1)
    rows = await multiply(s, ones.reshape((n, 1)), rows)
    with s.scope("network"):
        for step in range(digits.shape[0]):
            goes, rows = rows[:, :1], rows[:, 1:]
            moved = await multiply(s, goes, rows)
            up = 1 << step
            landed = ops.concat([moved[up:], ops.zeros((up, moved.shape[1]))], 0)
            s.charge(0, WORD_BYTES * 4 * moved.size)
            rows = rows - moved + landed
    return rows
