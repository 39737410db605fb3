"""The KV cache under skipped heads: which entries are holes, which are missed, and how they are filled.

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
from comet_sim.comet.settings import Policy
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["CacheCounts", "CometCache", "LayerCache", "refill_bytes", "wanted"]

Mask = NDArray[np.bool_]


def wanted(active: Mask) -> Mask:
    """Return which new K/V entries a pass needs (B, m, K/V heads): the head is active then, or later in the pass."""
    later: Mask = np.logical_or.accumulate(active[:, ::-1], axis=1)[:, ::-1]
    return later


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
    """What happened to cache entries so far, over all layers."""

    hits: int = 0
    misses: int = 0
    prefetched: int = 0
    used: int = 0
    """Entries that an active head read."""


class LayerCache:
    """One layer: shares of keys, values (B K/V heads, T, head dim), inputs (B, T, hidden); holes (B, T, K/V heads).

    B sequences are served together, each with holes of its own.
    """

    __slots__ = ("holes", "inputs", "keys", "values")

    def __init__(self) -> None:
        self.keys: Any = None
        self.values: Any = None
        self.inputs: Any = None
        self.holes: Mask | None = None

    @property
    def length(self) -> int:
        """Number of tokens of each sequence."""
        return 0 if self.holes is None else self.holes.shape[1]

    def missed(self, heads: Mask) -> Mask:
        """Return the holes (B, T, K/V heads) that tokens with these heads (B, K/V heads) active would read."""
        assert self.holes is not None
        return self.holes & heads[:, None, :]

    def fill(self, s: Session, keys: Any, values: Any, filled: Mask) -> None:
        """Put values (B K/V heads, T, head dim), zero elsewhere, into the holes `filled` (B, T, K/V heads)."""
        assert self.holes is not None
        # Holes are zero at both servers, and so is what is not filled: adding puts it in place.
        self.keys = self.keys + keys
        self.values = self.values + values
        self.holes = self.holes & ~filled
        s.charge(0, WORD_BYTES * 2 * keys.size)

    def append(self, s: Session, inputs: Any, keys: Any, values: Any, computed: Mask) -> None:
        """Append new tokens, inputs (B, m, hidden): entries that were not `computed` (B, m, K/V heads) are holes."""
        ops = s.ops
        if self.holes is None:
            self.inputs, self.keys, self.values, self.holes = inputs, keys, values, ~computed
            return
        self.inputs = ops.concat([self.inputs, inputs], 1)
        self.keys = ops.concat([self.keys, keys], 1)
        self.values = ops.concat([self.values, values], 1)
        self.holes = np.concatenate([self.holes, ~computed], 1)

    async def reorder(self, s: Session, order: Order, opener: Opener) -> None:
        """Put K/V heads into the next secret order, holes with them: 3 rounds; the holes are opened anew."""
        if self.holes is None:
            return
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

    @property
    def kept_bytes(self) -> int:
        """Bytes of stored layer inputs at each server: what refilling needs beyond keys and values."""
        return WORD_BYTES * sum(int(layer.inputs.size) for layer in self.layers if layer.inputs is not None)
