"""The private KV cache: shares of keys and values of all tokens so far."""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.masking import Masked
from comet_sim.mpc.session import Session

__all__ = ["KVCache"]


class KVCache:
    """Shares of keys and values of all earlier tokens: per layer two tensors (K/V heads, T, head dim).

    The first axis holds the K/V heads of each of `batch` sequences one after the other; `length` tokens of each are
    stored. With `reuse` they keep their masks, and only new rows are opened.
    """

    __slots__ = ("batch", "layers", "length", "reuse")

    def __init__(self, layers: int, *, batch: int = 1, reuse: bool = False) -> None:
        self.batch = batch
        self.length = 0
        self.reuse = reuse
        self.layers: list[tuple[Any, Any] | None] = [None] * layers

    def extend(self, s: Session, layer: int, keys: Any, values: Any) -> tuple[Any, Any]:
        """Append keys and values (K/V heads, m, head dim) of new tokens; return all of the layer's."""
        cached = self.layers[layer]
        if self.reuse:
            if cached is not None:
                cached[0].append(s, keys)
                cached[1].append(s, values)
                return cached
            keys = Masked(s, f"layer{layer}/keys", keys, axis=1)
            values = Masked(s, f"layer{layer}/values", values, axis=1)
        elif cached is not None:
            keys = s.ops.concat([cached[0], keys], 1)
            values = s.ops.concat([cached[1], values], 1)
        self.layers[layer] = (keys, values)
        return keys, values
