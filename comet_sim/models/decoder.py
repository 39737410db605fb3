"""The private decoder: a forward pass on shares, prompt first, then token by token with a KV cache.

OPT, GPT-2 and Llama are combinations of the same parts. The model is written once for the servers (exact or
as shapes) and for the dealer's walk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comet_sim.models.cache import KVCache
from comet_sim.models.config import ModelConfig
from comet_sim.models.linear import LinearLayers, Together
from comet_sim.models.rotary import rotary_tables
from comet_sim.mpc.beaver import matmul, multiply
from comet_sim.mpc.session import Session
from comet_sim.mpc.suite import Suite
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.mpc.truncation import rescale, scaled

__all__ = ["Layout", "PrivateDecoder"]

Turns = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Choices of the dense forward pass that change bytes or rounds, not the result.

    `qkv`: one product for Q, K and V (`fused`: the input is opened once), three side by side (`parallel`), or
    three in a row (`sequence`, as the reference decoder runs them); `ffn` the same for gate and up of a gated
    feed-forward. `final_norm`: only the `last` row, which the LM head needs, or `all` rows. `weights` and
    `cache`: whether weight matrices, and cached keys and values, are masked and sent at each use (`per-use`) or
    opened once under a fixed mask (`reuse`).
    """

    qkv: Together = "fused"
    ffn: Together = "fused"
    final_norm: Literal["last", "all"] = "last"
    weights: Literal["per-use", "reuse"] = "per-use"
    cache: Literal["per-use", "reuse"] = "per-use"


class PrivateDecoder:
    """One server's view of the model: its shares of the weights and the public dimensions.

    `weights` maps canonical names to this server's shares (fixed point); `exponents` gives each norm's public
    power of two by name.
    """

    __slots__ = ("config", "exponents", "layout", "linear", "suite", "weights")

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
        self.linear = LinearLayers(weights, reuse=layout.weights == "reuse")

    def new_cache(self, batch: int = 1) -> KVCache:
        """Return an empty KV cache for so many sequences of equal length."""
        return KVCache(self.config.layers, batch=batch, reuse=self.layout.cache == "reuse")

    async def forward(self, s: Session, onehot: Any, cache: KVCache) -> Any:
        """Return shares of the next tokens' logits (B, V) after m tokens of B sequences, one-hot rows (B m, V).

        The rows of a sequence are side by side. Weights are masked and sent once for all of them; attention keeps
        sequences apart. The rows hold integers, so the embedding product needs no truncation. The cache gains m
        tokens of each sequence.
        """
        config, batch = self.config, cache.batch
        tokens = onehot.shape[0] // batch
        start = cache.length
        with s.scope("embedding"):
            x = await matmul(s, onehot, self.linear.matrix(s, "embed"))
            if config.rope is None:
                first = start + config.position_offset
                by_sequence = x.reshape((batch, tokens, config.hidden))
                x = (by_sequence + self.weights["positions"][first : first + tokens]).reshape(x.shape)
        allowed = None
        if tokens > 1:
            # Causal: row i may look at every earlier token and at tokens 0..i of this pass.
            allowed = np.tri(tokens, start + tokens, start, dtype=bool)
        turns = self._turns(s, start, tokens)
        for layer in range(config.layers):
            with s.scope(f"layer{layer}"):
                with s.scope("attention"):
                    x = x + await self._attention(s, layer, x, cache, allowed, turns)
                with s.scope("ffn"):
                    x = x + await self._feed_forward(s, f"layer{layer}/ffn", x)
        cache.length = start + tokens
        with s.scope("head"):
            if self.layout.final_norm == "last":
                x = _last(x, batch)
            x = await self._norm(s, "final_norm", x)
            with s.scope("logits"):
                table = self.linear.matrix(s, config.head_name).swapaxes(0, 1)
                return await rescale(s, await matmul(s, _last(x, batch), table))

    async def _norm(self, s: Session, name: str, x: Any) -> Any:
        weight = self.weights[f"{name}/weight"]
        exponent, epsilon = self.exponents.get(name, 0), self.config.norm_epsilon
        if self.config.norm == "rmsnorm":
            return await self.suite.rms_norm(s, x, weight, exponent=exponent, epsilon=epsilon)
        bias = self.weights[f"{name}/bias"]
        return await self.suite.layer_norm(s, x, weight, bias, exponent=exponent, epsilon=epsilon)

    def _heads(self, x: Any, batch: int) -> Any:
        """Turn rows (B m, heads * head dim) into (B heads, m, head dim)."""
        tokens, width = x.shape[0] // batch, self.config.head_dim
        return x.reshape((batch, tokens, -1, width)).swapaxes(1, 2).reshape((-1, tokens, width))

    def _rows(self, x: Any, batch: int) -> Any:
        """Turn (B heads, m, head dim) back into rows (B m, heads * head dim)."""
        tokens, width = x.shape[-2:]
        return x.reshape((batch, -1, tokens, width)).swapaxes(1, 2).reshape((batch * tokens, -1))

    def _turns(self, s: Session, start: int, tokens: int) -> Turns | None:
        """Return this pass's rotary tables (m, head dim) in fixed point; None if positions are learned."""
        if self.config.rope is None:
            return None
        tables = rotary_tables(self.config.rope, self.config.head_dim, start, tokens)
        cosines, sines = (np.rint(table * s.constant(1)).astype(np.int64) for table in tables)
        return cosines, sines

    async def _turned(self, s: Session, x: Any, turns: Turns | None) -> Any:
        """Turn heads (B heads, m, head dim) by their positions: public angles, so local but for the rescaling."""
        return x if turns is None else await rescale(s, self._rotated(s, x, turns))

    def _rotated(self, s: Session, x: Any, turns: Turns) -> Any:
        """Turn heads (B heads, m, head dim) without rescaling them: local."""
        cosines, sines = turns
        s.charge(2 * x.size, WORD_BYTES * 4 * x.size)
        swapped = s.ops.roll(x, self.config.head_dim // 2, 2)
        return x * s.ops.public(cosines) + swapped * s.ops.public(sines)

    async def _attention(
        self, s: Session, layer: int, x: Any, cache: KVCache, allowed: Any, turns: Turns | None
    ) -> Any:
        config, batch = self.config, cache.batch
        tokens = x.shape[0] // batch
        name = f"layer{layer}/attention"
        hidden = await self._norm(s, f"{name}/norm", x)
        with s.scope("qkv"):
            parts = [f"{name}/{part}" for part in "qkv"]
            queries, keys, values = await self.linear.apply_all(s, parts, hidden, self.layout.qkv)
            queries = self._heads(await scaled(s, queries, 1 / sqrt(config.head_dim)), batch)
            queries = await self._turned(s, queries, turns)
            keys = await self._turned(s, self._heads(keys, batch), turns)
            keys, values = cache.extend(s, layer, keys, self._heads(values, batch))
        # The rows of query heads that share a K/V head are one operand, so each K/V head is opened once.
        grouped = (batch * config.kv_heads, config.heads // config.kv_heads * tokens, -1)
        single = (batch * config.heads, tokens, -1)
        with s.scope("scores"):
            scores = await matmul(s, queries.reshape(grouped), keys.swapaxes(1, 2))
            scores = (await rescale(s, scores)).reshape(single)
        weights = await self.suite.softmax(s, scores, allowed)
        with s.scope("values"):
            mixed = (await rescale(s, await matmul(s, weights.reshape(grouped), values))).reshape(single)
        with s.scope("output"):
            return await self.linear.apply(s, f"{name}/o", self._rows(mixed, batch))

    async def _feed_forward(self, s: Session, name: str, x: Any) -> Any:
        """Return fc2(act(fc1(x))), or down(act(gate(x)) * up(x)): gate and up open their input once if fused."""
        config, linear = self.config, self.linear
        hidden = await self._norm(s, f"{name}/norm", x)
        if not config.gated:
            with s.scope("fc1"):
                inner = await linear.apply(s, f"{name}/fc1", hidden)
            active = await self.suite.activation(s, inner, config.activation)
            with s.scope("fc2"):
                return await linear.apply(s, f"{name}/fc2", active)
        with s.scope("gate_up"):
            parts = [f"{name}/gate", f"{name}/up"]
            gate, up = await linear.apply_all(s, parts, hidden, self.layout.ffn)
        active = await self.suite.activation(s, gate, config.activation)
        with s.scope("product"):
            inner = await rescale(s, await multiply(s, active, up))
        with s.scope("down"):
            return await linear.apply(s, f"{name}/down", inner)


def _last(x: Any, batch: int) -> Any:
    """Return the last row of each sequence (B, n) of rows (B m, n)."""
    return x.reshape((batch, x.shape[0] // batch, -1))[:, -1]
