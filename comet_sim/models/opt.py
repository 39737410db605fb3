"""Private OPT: the decoder's forward pass on shares, prompt first, then token by token with a KV cache.

The model is written once for the servers (exact or as shapes) and for the dealer's walk. Linear layers mask
and send their weights at each use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np

from comet_sim.models.config import ModelConfig
from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.masking import Masked
from comet_sim.mpc.session import Session
from comet_sim.mpc.suite import Suite
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["KVCache", "Layout", "PrivateOPT"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Choices of the dense forward pass that change bytes or rounds, not the result.

    `qkv`: one product for Q, K and V (`fused`: the input is opened once), three side by side (`parallel`), or
    three in a row (`sequence`, as the reference decoder runs them). `final_norm`: only the `last` row, which
    the LM head needs, or `all` rows. `weights` and `cache`: whether weight matrices, and cached keys and values,
    are masked and sent at each use (`per-use`) or opened once under a fixed mask (`reuse`).
    """

    qkv: Literal["fused", "parallel", "sequence"] = "fused"
    final_norm: Literal["last", "all"] = "last"
    weights: Literal["per-use", "reuse"] = "per-use"
    cache: Literal["per-use", "reuse"] = "per-use"


class KVCache:
    """Shares of keys and values of all earlier tokens: per layer two tensors (heads, T, head dim).

    With `reuse` they keep their masks, and only new rows are opened.
    """

    __slots__ = ("layers", "length", "reuse")

    def __init__(self, layers: int, *, reuse: bool = False) -> None:
        self.length = 0
        self.reuse = reuse
        self.layers: list[tuple[Any, Any] | None] = [None] * layers

    def extend(self, s: Session, layer: int, keys: Any, values: Any) -> tuple[Any, Any]:
        """Append keys and values (heads, m, head dim) of new tokens; return all of the layer's."""
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


class PrivateOPT:
    """One server's view of the model: its shares of the weights and the public dimensions.

    `weights` maps canonical names to this server's shares (fixed point); `exponents` gives each norm's public
    power of two by name.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Any],
        exponents: Mapping[str, int],
        suite: Suite,
        layout: Layout,
    ) -> None:
        self.config = config
        self.weights = weights
        self.exponents = exponents
        self.suite = suite
        self.layout = layout
        self._masked: dict[str, Masked] = {}

    def new_cache(self) -> KVCache:
        """Return an empty KV cache."""
        return KVCache(self.config.layers, reuse=self.layout.cache == "reuse")

    def _matrix(self, s: Session, *names: str) -> Any:
        """Return a weight matrix as the operand of a product: several side by side, masked as the layout says."""
        if self.layout.weights == "reuse" and names[0] in self._masked:
            return self._masked[names[0]]
        shares = [self.weights[name] for name in names]
        share = shares[0] if len(shares) == 1 else s.ops.concat(shares, 1)
        if self.layout.weights == "per-use":
            return share
        masked = self._masked[names[0]] = Masked(s, names[0], share)
        return masked

    async def forward(self, s: Session, onehot: Any, cache: KVCache) -> Any:
        """Return shares of the next token's logits (1, V) after m tokens given as one-hot rows (m, V).

        The rows hold integers, so the embedding product needs no truncation. The cache gains m tokens.
        """
        config = self.config
        tokens = onehot.shape[0]
        start = cache.length
        with s.scope("embedding"):
            x = await matmul(s, onehot, self._matrix(s, "embed"))
            first = start + config.position_offset
            x = x + self.weights["positions"][first : first + tokens]
        allowed = None
        if tokens > 1:
            # Causal: row i may look at every earlier token and at tokens 0..i of this pass.
            allowed = np.tri(tokens, start + tokens, start, dtype=bool)
        for layer in range(config.layers):
            with s.scope(f"layer{layer}"):
                with s.scope("attention"):
                    x = x + await self._attention(s, layer, x, cache, allowed)
                with s.scope("ffn"):
                    x = x + await self._feed_forward(s, layer, x)
        cache.length = start + tokens
        with s.scope("head"):
            if self.layout.final_norm == "last":
                x = x[-1:]
            x = await self._norm(s, "final_norm", x)
            with s.scope("logits"):
                table = self._matrix(s, config.head_name).swapaxes(0, 1)
                return s.truncate(await matmul(s, x[-1:], table))

    async def _norm(self, s: Session, name: str, x: Any) -> Any:
        return await self.suite.layer_norm(
            s,
            x,
            self.weights[f"{name}/weight"],
            self.weights[f"{name}/bias"],
            exponent=self.exponents.get(name, 0),
            epsilon=self.config.norm_epsilon,
        )

    async def _linear(self, s: Session, name: str, x: Any) -> Any:
        """Multiply by a weight matrix (in, out) and add the bias: 1 round, 8 (m in + in out) bytes."""
        product = s.truncate(await matmul(s, x, self._matrix(s, f"{name}/weight")))
        s.charge(0, WORD_BYTES * 3 * product.size)
        return product + self.weights[f"{name}/bias"]

    async def _qkv(self, s: Session, layer: int, x: Any) -> list[Any]:
        """Return Q, K and V (m, heads * head dim) for normalised input (m, d)."""
        names = [f"layer{layer}/attention/{part}" for part in "qkv"]
        if self.layout.qkv == "sequence":
            return [await self._linear(s, name, x) for name in names]
        if self.layout.qkv == "parallel":
            return await s.gather(*(lambda child, name=name: self._linear(child, name, x) for name in names))
        weight = self._matrix(s, *(f"{name}/weight" for name in names))
        product = s.truncate(await matmul(s, x, weight))
        s.charge(0, WORD_BYTES * 3 * product.size)
        width = product.shape[1] // 3
        return [
            product[:, i * width : (i + 1) * width] + self.weights[f"{name}/bias"]
            for i, name in enumerate(names)
        ]

    def _heads(self, x: Any) -> Any:
        """Turn (m, heads * head dim) into (heads, m, head dim)."""
        config = self.config
        return x.reshape((x.shape[0], config.heads, config.head_dim)).swapaxes(0, 1)

    async def _attention(self, s: Session, layer: int, x: Any, cache: KVCache, allowed: Any) -> Any:
        config = self.config
        tokens = x.shape[0]
        hidden = await self._norm(s, f"layer{layer}/attention/norm", x)
        with s.scope("qkv"):
            queries, keys, values = await self._qkv(s, layer, hidden)
            queries = self._heads(s.scale(queries, 1 / sqrt(config.head_dim)))
            keys, values = cache.extend(s, layer, self._heads(keys), self._heads(values))
        with s.scope("scores"):
            scores = s.truncate(await matmul(s, queries, keys.swapaxes(1, 2)))
        weights = await self.suite.softmax(s, scores, allowed)
        with s.scope("values"):
            mixed = s.truncate(await matmul(s, weights, values))
        mixed = mixed.swapaxes(0, 1).reshape((tokens, config.heads * config.head_dim))
        with s.scope("output"):
            return await self._linear(s, f"layer{layer}/attention/o", mixed)

    async def _feed_forward(self, s: Session, layer: int, x: Any) -> Any:
        hidden = await self._norm(s, f"layer{layer}/ffn/norm", x)
        with s.scope("fc1"):
            inner = await self._linear(s, f"layer{layer}/ffn/fc1", hidden)
        active = await self.suite.activation(s, inner, self.config.activation)
        with s.scope("fc2"):
            return await self._linear(s, f"layer{layer}/ffn/fc2", active)
