"""The KV cache under skipped heads: which entries are holes, what fills them, and what became of each.

An entry is (layer, K/V head, token). A head that is inactive for a token leaves a hole; a later token for which
it is active misses the entry and it is computed from the stored, normalised layer input. Source: paper (holes,
merged misses); the policies compared and their costs are reconstructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.masks import Opener
from comet_sim.comet.prefetch import HeadHistory
from comet_sim.comet.settings import Policy
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["CacheCounts", "CometCache", "LayerCache", "refill_bytes"]

Mask = NDArray[np.bool_]


def refill_bytes(policy: Policy, missed: Mask, hidden: int, head_dim: int) -> int:
    """Return the bytes a server sends to fill missed entries (B, T, K/V heads); `fused` at most, for its rows alone.

    The weights of a head are sent once for all sequences.
    """
    rows, heads = int(missed.any(-1).sum()), int(missed.any((0, 1)).sum())
    if policy == "immediate":
        return WORD_BYTES * int(missed.sum()) * hidden * (1 + 2 * head_dim)
    if policy == "merged":
        return WORD_BYTES * hidden * (rows + 2 * head_dim * heads)
    return WORD_BYTES * hidden * rows


@dataclass(slots=True)
class CacheCounts:
    """What happened to entries of earlier tokens so far, over all layers; an entry is (layer, K/V head, token)."""

    hits: int = 0
    """Read by an active head, and there."""
    misses: int = 0
    """Read by an active head, and a hole."""
    prefetched: int = 0
    """Filled because it was cheap, not because they were read."""
    prefetched_used: int = 0
    """Of those, read later. After a new secret order nobody can tell: those before it count as unused."""
    looked_ahead: int = 0
    """Filled while the layer before was at work, because their head was likely active next."""
    looked_ahead_used: int = 0
    refilled: int = 0
    """Made from stored layer inputs: missed, prefetched or looked ahead."""
    refill_products: int = 0
    """Products that made them; `immediate` makes one an entry."""
    refilled_heads: int = 0
    """K/V heads whose columns these products used, each product counted apart."""

    @property
    def merged(self) -> float | None:
        """Entries a refill product makes."""
        return self.refilled / self.refill_products if self.refill_products else None

    @property
    def merged_heads(self) -> float | None:
        """Entries for each time a head's columns are used: the factor of merging where columns outweigh rows."""
        return self.refilled / self.refilled_heads if self.refilled_heads else None


_PREFETCHED, _AHEAD = 1, 2


class LayerCache:
    """One layer: shares of keys, values (B K/V heads, T, head dim), inputs (B, T, hidden); holes (B, T, K/V heads).

    B sequences are served together, each with holes of its own. `early` (B, T, K/V heads) marks entries that were
    filled early and have not been read since.
    """

    __slots__ = ("early", "history", "holes", "inputs", "keys", "values")

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.inputs: Any = None
        self.holes: Mask | None = None
        self.early: NDArray[np.int8] | None = None
        self.history = HeadHistory()

    @property
    def length(self) -> int:
        """Number of tokens of each sequence."""
        return 0 if self.holes is None else self.holes.shape[1]

    def open_holes(self, batch: int, heads: int) -> Mask:
        """Return which entries (B, T, K/V heads) are holes."""
        return np.zeros((batch, 0, heads), bool) if self.holes is None else self.holes

    def append(self, s: Session, inputs: Any, keys: Any, values: Any, computed: Mask) -> None:
        """Append new tokens, inputs (B, m, hidden): entries that were not `computed` (B, m, K/V heads) are holes."""
        ops, early = s.ops, np.zeros(computed.shape, np.int8)
        if self.holes is None or self.early is None:
            self.inputs, self.keys, self.values = inputs, keys, values
            self.holes, self.early = ~computed, early
            return
        self.inputs = ops.concat([self.inputs, inputs], 1)
        self.keys = ops.concat([self.keys, keys], 1)
        self.values = ops.concat([self.values, values], 1)
        self.holes = np.concatenate([self.holes, ~computed], 1)
        self.early = np.concatenate([self.early, early], 1)

    def fill(self, s: Session, keys: Any, values: Any, filled: Mask) -> None:
        """Put values (B K/V heads, n, head dim) of the first n tokens into the holes `filled` (B, n, K/V heads).

        They are zero elsewhere.
        """
        assert self.holes is not None
        count = filled.shape[1]
        self.keys = self._added(s, self.keys, keys, count)
        self.values = self._added(s, self.values, values, count)
        self.holes[:, :count] &= ~filled
        s.charge(0, WORD_BYTES * 2 * keys.size)

    def _added(self, s: Session, old: Any, new: Any, count: int) -> Any:
        # Holes are zero at both servers, and so is what is not filled: adding puts it in place.
        if count == self.length:
            return old + new
        return s.ops.concat([old[:, :count] + new, old[:, count:]], 1)

    def read(self, counts: CacheCounts, used: Mask, missed: Mask) -> None:
        """Count what heads `used` (B, K/V heads) read, and miss (B, T, K/V heads), of the tokens so far."""
        if self.early is None:
            return
        there = np.broadcast_to(used[:, None], self.early.shape)
        read = self.early[there]
        misses = int(np.count_nonzero(missed))
        counts.misses += misses
        counts.hits += read.size - misses
        counts.prefetched_used += int(np.count_nonzero(read == _PREFETCHED))
        counts.looked_ahead_used += int(np.count_nonzero(read == _AHEAD))
        self.early[there] = 0

    def mark(self, counts: CacheCounts, early: Mask, *, ahead: bool = False) -> None:
        """Note entries (B, T, K/V heads) that were filled before anything read them."""
        assert self.early is not None
        self.early[early] = _AHEAD if ahead else _PREFETCHED
        number = int(np.count_nonzero(early))
        if ahead:
            counts.looked_ahead += number
        else:
            counts.prefetched += number

    async def reorder(self, s: Session, order: Order, opener: Opener) -> None:
        """Put K/V heads into the next secret order, holes with them: 3 rounds; the holes are opened anew."""
        self.history.forget()
        if self.holes is None:
            return
        self.early = np.zeros_like(self.early)
        ops, shape = s.ops, self.keys.shape
        batch = len(self.holes)
        # K/V heads first, (K/V heads, B, T, ...): one order moves those of all sequences.
        holes = self.holes.transpose(2, 0, 1)
        by_head = (batch, -1, *shape[1:])
        keys, values = (part.reshape(by_head).swapaxes(0, 1) for part in (self.keys, self.values))
        # Public bits as XOR shares: server 0 holds them.
        bits = ops.public(holes if s.index == 0 else np.zeros_like(holes))
        parts = [Shuffled(keys), Shuffled(values), Shuffled(bits, bits=True)]
        keys, values, bits = await shuffle(s, order, parts)
        self.keys, self.values = (part.swapaxes(0, 1).reshape(shape) for part in (keys, values))
        self.holes = (await opener.move(s, bits, holes, order)).transpose(1, 2, 0)


@dataclass(slots=True)
class CometCache:
    """The KV cache of all layers."""

    layers: list[LayerCache]
    batch: int = 1
    length: int = 0
    steps: int = 0
    counts: CacheCounts = field(default_factory=CacheCounts)

    def refilled(self, policy: Policy, made: Mask) -> None:
        """Count a refill that makes entries (B, n, K/V heads) from stored inputs."""
        entries = int(np.count_nonzero(made))
        counts, each = self.counts, policy == "immediate"
        counts.refilled += entries
        counts.refill_products += entries if each else min(1, entries)
        counts.refilled_heads += entries if each else int(np.count_nonzero(made.any((0, 1))))

    @property
    def kept_bytes(self) -> int:
        """Bytes of stored layer inputs at each server: what refilling needs beyond keys and values."""
        return WORD_BYTES * sum(int(layer.inputs.size) for layer in self.layers if layer.inputs is not None)
