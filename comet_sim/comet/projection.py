"""Queries, keys and values of active pairs only, and the refills of the KV cache's holes."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.kv_cache import CometCache, LayerCache
from comet_sim.comet.prefetch import Fills, likely, plan_fills
from comet_sim.comet.rescaling import rescale_where
from comet_sim.comet.selective import selective_matmul
from comet_sim.comet.somm import somm
from comet_sim.models.decoder import Turns
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

if TYPE_CHECKING:
    from comet_sim.comet.decoder import CometDecoder

__all__ = ["Projection"]

Mask = NDArray[np.bool_]


def _widened(mask: Mask, width: int) -> Mask:
    """Turn a mask over blocks (m, blocks) into one over their columns."""
    return np.repeat(mask, width, axis=1)


def _blocks(queries: Mask, entries: Mask) -> Mask:
    """Return the blocks (rows, Q, K and V heads) of `queries` (..., heads) and K/V `entries` (..., K/V heads)."""
    entries = entries.reshape(-1, entries.shape[-1])
    return np.concatenate([queries.reshape(len(entries), -1), entries, entries], 1)


class Projection:
    """Q, K and V of a `CometDecoder`, layer by layer."""

    __slots__ = ("model",)

    def __init__(self, model: CometDecoder) -> None:
        self.model = model

    async def run(
        self, s: Session, layer: int, hidden: Any, cache: CometCache, heads: Mask, turns: Turns | None
    ) -> Any:
        """Return queries (B heads, m, head dim) of new tokens for active `heads` (B m, heads).

        The cache gains K and V; after it no active head finds a hole.
        """
        config, settings = self.model.config, self.model.settings
        batch = cache.batch
        active = np.asarray(heads.reshape(batch, len(heads) // batch, config.kv_heads, -1).any(3))
        state = cache.layers[layer]
        state.history.see(active)
        chances = state.history.chances(self.model.passes_left(cache))
        fills = plan_fills(
            settings.policy,
            settings.prefetch,
            state.open_holes(batch, config.kv_heads),
            active,
            chances,
            config.head_dim,
        )
        state.read(cache.counts, fills.used, fills.missed)
        cache.refilled(settings.policy, fills.stored)
        fused = settings.policy == "fused" and cache.length > 0
        make = self._fused if fused else self._separate
        queries = await make(s, layer, hidden, state, heads, fills, turns)
        state.mark(cache.counts, fills.early)
        return queries

    async def dense(
        self, s: Session, layer: int, hidden: Any, cache: CometCache, heads: Mask, turns: Turns | None
    ) -> Any:
        """Return queries of new tokens with all heads active; nothing is ever a hole."""
        config, batch = self.model.config, cache.batch
        fresh = np.ones((batch, len(heads) // batch, config.kv_heads), bool)
        with s.scope("qkv"):
            queries, keys, values = await self._project(s, layer, hidden, _blocks(heads, fresh), batch)
        queries, keys = await self._placed(s, queries, keys, turns, heads, fresh)
        cache.layers[layer].append(s, hidden.reshape((batch, -1, config.hidden)), keys, values, fresh)
        return queries

    async def look_ahead(
        self, s: Session, layer: int, cache: CometCache, weight: Any
    ) -> tuple[Any, Any, Mask]:
        """Make what a layer's next step is likely to miss, at low priority; return K, V and what they fill.

        `weight` is the layer's `refill_weight`; the result fills entries (B, T, K/V heads).
        """
        state = cache.layers[layer]
        chances = state.history.chances(None)
        filled = likely(state.open_holes(cache.batch, self.model.config.kv_heads), chances)
        cache.refilled(self.model.settings.policy, filled)
        # Links with several classes let everything else go first.
        s.priority += 1
        with s.scope("lookahead"):
            keys, values = await self._refill(s, layer, weight, state.inputs, filled)
        return keys, values, filled

    def refill_weight(self, s: Session, layer: int) -> Any:
        """Return a layer's K and V weights (d, 2 K/V heads x head dim) as the operand of a refill."""
        return self.model.linear.matrix(s, *(f"layer{layer}/attention/{part}/weight" for part in "kv"))

    async def _separate(
        self,
        s: Session,
        layer: int,
        hidden: Any,
        state: LayerCache,
        heads: Mask,
        fills: Fills,
        turns: Turns | None,
    ) -> Any:
        """Make Q, K, V of new tokens, and beside it K, V from stored inputs; return queries."""
        fresh, stored = fills.fresh, fills.stored
        batch = len(fresh)
        new_inputs = hidden.reshape((batch, -1, hidden.shape[1]))

        async def project(child: Session) -> tuple[Any, Any, Any]:
            with child.scope("qkv"):
                return await self._project(child, layer, hidden, _blocks(heads, fresh), batch)

        async def refill(child: Session) -> tuple[Any, Any]:
            inputs = state.inputs
            if stored.shape[1] > state.length:
                inputs = child.ops.concat([inputs, new_inputs], 1)
            with child.scope("refill"):
                return await self._refill(child, layer, weight, inputs, stored)

        refilled: tuple[Any, Any] | None = None
        if state.length:
            weight = self.refill_weight(s, layer)
            (queries, keys, values), refilled = await s.gather(project, refill)
        else:
            queries, keys, values = await project(s)
        queries, keys = await self._placed(s, queries, keys, turns, heads, fresh)
        state.append(s, new_inputs, keys, values, fresh)
        if refilled is not None:
            state.fill(s, *refilled, stored)
        return queries

    async def _fused(
        self,
        s: Session,
        layer: int,
        hidden: Any,
        state: LayerCache,
        heads: Mask,
        fills: Fills,
        turns: Turns | None,
    ) -> Any:
        """Make Q, K, V of new tokens and K, V from stored inputs in one product; return queries."""
        past, fresh, stored = state.length, fills.fresh, fills.stored
        batch, width = len(fresh), hidden.shape[1]
        hidden = hidden.reshape((batch, -1, width))
        unasked = np.zeros((batch, past, heads.shape[1]), bool)
        asked = np.concatenate([unasked, heads.reshape(batch, -1, heads.shape[1])], 1)
        blocks = _blocks(asked, np.concatenate([stored, fresh], 1))
        with s.scope("qkv"):
            rows = s.ops.concat([state.inputs, hidden], 1).reshape((len(blocks), width))
            queries, keys, values = await self._project(s, layer, rows, blocks, batch)
        turned = await self._turned(s, keys[:, :past], self.model._turns(s, 0, past), stored)
        state.fill(s, turned, values[:, :past], stored)
        queries, keys = await self._placed(s, queries[:, past:], keys[:, past:], turns, heads, fresh)
        state.append(s, hidden, keys, values[:, past:], fresh)
        return queries

    async def _project(
        self, s: Session, layer: int, x: Any, blocks: Mask, batch: int
    ) -> tuple[Any, Any, Any]:
        """Return queries, keys, values (B heads, m, head dim) of `blocks` (B m, Q, K and V heads), else zero."""
        config, linear = self.model.config, self.model.linear
        parts = [f"layer{layer}/attention/{part}" for part in "qkv"]
        mask = _widened(blocks, config.head_dim)
        weight = linear.matrix(s, *(f"{part}/weight" for part in parts))
        product, _ = await somm(s, x, weight, mask, way=self.model.settings.linear)
        product = await rescale_where(s, self.model.partial, product, mask)
        product = self._biased(s, parts, product, mask)
        first = config.heads * config.head_dim
        second = first + config.kv_heads * config.head_dim
        split = (product[:, :first], product[:, first:second], product[:, second:])
        queries, keys, values = (self.model._heads(part, batch) for part in split)
        return queries, keys, values

    def _biased(self, s: Session, parts: list[str], product: Any, mask: Mask) -> Any:
        """Add the parts' biases, if they have any, where the mask holds: local."""
        biases = [self.model.weights.get(f"{part}/bias") for part in parts]
        if biases[0] is None:
            return product
        s.charge(0, WORD_BYTES * 3 * product.size)
        return s.ops.select(product + s.ops.concat(biases, 0), mask, 0)

    async def _placed(
        self, s: Session, queries: Any, keys: Any, turns: Turns | None, heads: Mask, fresh: Mask
    ) -> tuple[Any, Any]:
        """Scale queries of active `heads` (B m, heads), and turn them and `fresh` keys (B, m, K/V heads)."""
        model, batch = self.model, len(fresh)
        asked = heads.reshape(batch, -1, model.config.heads)
        shrunk = queries * s.constant(1 / sqrt(model.config.head_dim))
        queries = await rescale_where(s, model.partial, shrunk, _by_head(asked))
        return await self._turned(s, queries, turns, asked), await self._turned(s, keys, turns, fresh)

    async def _turned(self, s: Session, x: Any, turns: Turns | None, there: Mask) -> Any:
        """Turn heads (B heads, m, head dim) by their positions, where `there` (B, m, heads) holds; else zero."""
        if turns is None:
            return x
        return await rescale_where(s, self.model.partial, self.model._rotated(s, x, turns), _by_head(there))

    async def _refill(self, s: Session, layer: int, weight: Any, inputs: Any, made: Mask) -> tuple[Any, Any]:
        """Return K and V (B K/V heads, n, head dim) of stored inputs (B, n, d), zero where not `made`.

        `made` is (B, n, K/V heads). In one product, or one an entry.
        """
        config = self.model.config
        parts = [f"layer{layer}/attention/{part}" for part in "kv"]
        batch, tokens = made.shape[:2]
        # A row an entry of the cache, those of a sequence side by side.
        made = made.reshape(batch * tokens, -1)
        inputs = inputs.reshape((len(made), config.hidden))
        mask = _widened(np.concatenate([made, made], 1), config.head_dim)
        if self.model.settings.policy == "immediate":
            product = await self._each(s, inputs, weight, made)
        else:
            product, _ = await somm(s, inputs, weight, mask)
        product = await rescale_where(s, self.model.partial, product, mask)
        product = self._biased(s, parts, product, mask)
        width = config.kv_heads * config.head_dim
        keys, values = (self.model._heads(part, batch) for part in (product[:, :width], product[:, width:]))
        there = made.reshape(batch, tokens, -1)
        return await self._turned(s, keys, self.model._turns(s, 0, tokens), there), values

    async def _each(self, s: Session, inputs: Any, weight: Any, made: Mask) -> Any:
        """Make each entry by itself, (1, d) by (d, 2 head dims), all in one round: nothing is shared between them."""
        config, ops = self.model.config, s.ops
        tokens, hidden = inputs.shape
        groups, width = config.kv_heads, config.head_dim
        # (d, 2 * groups * dh) to one block (d, 2 dh) a K/V head.
        blocks = (
            weight.reshape((hidden, 2, groups, width)).swapaxes(1, 2).reshape((hidden, groups, 2 * width))
        )
        blocks = blocks.swapaxes(0, 1)
        many_x = ops.stack([inputs] * groups).swapaxes(0, 1).reshape((tokens * groups, 1, hidden))
        many_y = ops.stack([blocks] * tokens).reshape((tokens * groups, hidden, 2 * width))
        chosen = made.reshape(-1)
        product = await selective_matmul(
            s,
            many_x,
            many_y,
            x_rows=chosen[:, None],
            y_columns=np.repeat(chosen[:, None], 2 * width, axis=1),
            work=int(chosen.sum()) * hidden * 2 * width,
        )
        product = ops.select(product.reshape((tokens * groups, 2 * width)), chosen[:, None], 0)
        product = product.reshape((tokens, groups, 2, width)).swapaxes(1, 2)
        return product.reshape((tokens, 2 * groups * width))


def _by_head(mask: Mask) -> Mask:
    """Turn a mask (B, m, heads) into one of tensors (B heads, m, head dim)."""
    found: Mask = mask.transpose(0, 2, 1).reshape(-1, mask.shape[1])
    return found
