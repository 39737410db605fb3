"""Attention over active heads only: scores, softmax and output of active (token, head) pairs, K and V on demand."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.components import active_columns
from comet_sim.comet.kv_cache import CometCache, LayerCache, wanted
from comet_sim.comet.selective import selective_matmul
from comet_sim.comet.simm import simm
from comet_sim.comet.somm import somm
from comet_sim.models.decoder import Turns
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

if TYPE_CHECKING:
    from comet_sim.comet.decoder import CometDecoder

__all__ = ["SparseAttention"]

Mask = NDArray[np.bool_]


def _widened(mask: Mask, width: int) -> Mask:
    """Turn a mask over blocks (m, blocks) into one over their columns."""
    return np.repeat(mask, width, axis=1)


class SparseAttention:
    """Attention of a `CometDecoder`, layer by layer."""

    __slots__ = ("model",)

    def __init__(self, model: CometDecoder) -> None:
        self.model = model

    async def run(self, s: Session, layer: int, x: Any, cache: CometCache, turns: Turns | None) -> Any:
        """Return the attention output (m, d) of tokens x (m, d); the cache gains them."""
        model, config = self.model, self.model.config
        name = f"layer{layer}/attention"
        tokens, start = x.shape[0], cache.length
        state = cache.layers[layer]
        hidden = await model._norm(s, f"{name}/norm", x)
        bits = await model.active(s, "heads", layer, hidden, start)
        heads = await model.opened(s, bits, model.call("heads", layer, start, tokens))
        groups = heads.reshape(tokens, config.kv_heads, -1)
        active = np.asarray(groups.any(2))
        fresh = wanted(active)
        if model.settings.policy == "fused" and start:
            queries = await self._fused(s, name, hidden, cache, state, heads, fresh, active, turns)
        else:
            queries = await self._separate(s, name, hidden, cache, state, heads, fresh, active, turns)
        return await self._attend(s, name, queries, state, groups, start)

    async def dense(
        self, s: Session, layer: int, x: Any, cache: CometCache, allowed: Any, turns: Turns | None
    ) -> Any:
        """Attend with every head active and no predictor: what a model without head skipping runs."""
        config = self.model.config
        tokens, start = x.shape[0], cache.length
        name = f"layer{layer}/attention"
        hidden = await self.model._norm(s, f"{name}/norm", x)
        heads = np.ones((tokens, config.heads), bool)
        fresh = np.ones((tokens, config.kv_heads), bool)
        state = cache.layers[layer]
        queries = await self._separate(
            s, name, hidden, cache, state, heads, fresh, fresh, turns, refill=False
        )
        return await self._attend(s, name, queries, state, heads.reshape(tokens, config.kv_heads, -1), start)

    # -- queries, keys and values -----------------------------------------------------------------------

    async def _separate(
        self,
        s: Session,
        name: str,
        hidden: Any,
        cache: CometCache,
        state: LayerCache,
        heads: Mask,
        fresh: Mask,
        active: Mask,
        turns: Turns | None,
        *,
        refill: bool = True,
    ) -> Any:
        """Make wanted Q, K, V of new tokens, and beside it fill the holes they miss; return queries."""

        async def project(child: Session) -> tuple[Any, Any, Any]:
            with child.scope("qkv"):
                return await self._project(child, name, hidden, np.concatenate([heads, fresh, fresh], 1))

        async def fill(child: Session) -> None:
            with child.scope("refill"):
                await self._refill(child, name, cache, state, active)

        if refill and cache.length:
            (queries, keys, values), _ = await s.gather(project, fill)  # type: ignore[misc]
        else:
            queries, keys, values = await project(s)
        queries, keys = self._placed(s, queries, keys, turns)
        state.append(s, hidden, keys, values, fresh)
        return queries

    async def _project(self, s: Session, name: str, x: Any, blocks: Mask) -> tuple[Any, Any, Any]:
        """Return queries, keys, values (heads, m, head dim) where `blocks` (m, Q, K and V heads) holds, else zero."""
        config, linear = self.model.config, self.model.linear
        parts = [f"{name}/{part}" for part in "qkv"]
        mask = _widened(blocks, config.head_dim)
        weight = linear.matrix(s, *(f"{part}/weight" for part in parts))
        product, _ = await somm(s, x, weight, mask, way=self.model.settings.linear)
        product = s.truncate(product)
        biases = [self.model.weights.get(f"{part}/bias") for part in parts]
        if biases[0] is not None:
            s.charge(0, WORD_BYTES * 3 * product.size)
            product = s.ops.select(product + s.ops.concat(biases, 0), mask, 0)
        first = config.heads * config.head_dim
        second = first + config.kv_heads * config.head_dim
        split = (product[:, :first], product[:, first:second], product[:, second:])
        queries, keys, values = (self.model._heads(part) for part in split)
        return queries, keys, values

    def _placed(self, s: Session, queries: Any, keys: Any, turns: Turns | None) -> tuple[Any, Any]:
        """Scale queries, and turn queries and keys by their positions: local."""
        model = self.model
        queries = model._turned(s, s.scale(queries, 1 / sqrt(model.config.head_dim)), turns)
        return queries, model._turned(s, keys, turns)

    async def _refill(
        self, s: Session, name: str, cache: CometCache, state: LayerCache, active: Mask
    ) -> None:
        """Compute the K and V that active heads miss, from stored inputs: in one product, or one an entry."""
        config, linear = self.model.config, self.model.linear
        missed = state.missed(active_columns(active))
        self._count(cache, state, active, missed)
        parts = [f"{name}/{part}" for part in "kv"]
        weight = linear.matrix(s, *(f"{part}/weight" for part in parts))
        mask = _widened(np.concatenate([missed, missed], 1), config.head_dim)
        if self.model.settings.policy == "immediate":
            product = await self._each(s, state.inputs, weight, missed)
        else:
            product, _ = await somm(s, state.inputs, weight, mask)
        product = s.truncate(product)
        biases = [self.model.weights.get(f"{part}/bias") for part in parts]
        if biases[0] is not None:
            product = s.ops.select(product + s.ops.concat(biases, 0), mask, 0)
        width = config.kv_heads * config.head_dim
        keys, values = (self.model._heads(part) for part in (product[:, :width], product[:, width:]))
        keys = self.model._turned(s, keys, self.model._turns(s, 0, cache.length))
        state.fill(s, keys, values, missed)

    async def _each(self, s: Session, inputs: Any, weight: Any, missed: Mask) -> Any:
        """One multiplication a miss, (1, d) by (d, 2 head dims), all in one round: nothing is shared between them."""
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
        chosen = missed.reshape(-1)
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

    async def _fused(
        self,
        s: Session,
        name: str,
        hidden: Any,
        cache: CometCache,
        state: LayerCache,
        heads: Mask,
        fresh: Mask,
        active: Mask,
        turns: Turns | None,
    ) -> Any:
        """Make Q, K, V of new tokens and the K, V that were missed in one product; return queries."""
        model, config = self.model, self.model.config
        past = cache.length
        missed = state.missed(active_columns(active))
        self._count(cache, state, active, missed)
        old = np.concatenate([np.zeros((past, config.heads), bool), missed, missed], 1)
        new = np.concatenate([heads, fresh, fresh], 1)
        with s.scope("qkv"):
            rows = s.ops.concat([state.inputs, hidden], 0)
            queries, keys, values = await self._project(s, name, rows, np.concatenate([old, new]))
        turned = model._turned(s, keys[:, :past], model._turns(s, 0, past))
        state.fill(s, turned, values[:, :past], missed)
        queries, keys = self._placed(s, queries[:, past:], keys[:, past:], turns)
        state.append(s, hidden, keys, values[:, past:], fresh)
        return queries

    def _count(self, cache: CometCache, state: LayerCache, active: Mask, missed: Mask) -> None:
        counts = cache.counts
        read = int(active.any(0).sum()) * state.length
        counts.misses += int(missed.sum())
        counts.hits += read - int(missed.sum())

    # -- scores to output -------------------------------------------------------------------------------

    async def _attend(
        self, s: Session, name: str, queries: Any, state: LayerCache, groups: Mask, start: int
    ) -> Any:
        """Return the output (m, d) of active (token, head) pairs: scores, softmax, values, output projection."""
        model, config, ops = self.model, self.model.config, s.ops
        tokens = groups.shape[0]
        total = start + tokens
        share, width = config.heads // config.kv_heads, config.head_dim
        stacked = (config.kv_heads, share * tokens, -1)
        # (m, K/V heads, query heads of each) to (K/V heads, query heads * m): the rows of one operand.
        pairs = groups.transpose(1, 2, 0).reshape(config.kv_heads, share * tokens)
        causal = np.tri(tokens, total, start, dtype=bool)
        # A K/V head is read up to the last token for which it is active.
        last = np.where(groups.any(2), np.arange(tokens)[:, None], -1).max(0)
        read = (np.arange(total)[None, :] <= start + last[:, None]) & (last >= 0)[:, None]
        work = int(pairs.sum()) * total * width
        with s.scope("scores"):
            scores = await selective_matmul(
                s,
                queries.reshape(stacked),
                state.keys.swapaxes(1, 2),
                x_rows=pairs,
                y_columns=read,
                work=work,
            )
            rows = np.broadcast_to(causal, (config.kv_heads * share, tokens, total)).reshape(-1, total)
            allowed = None if tokens == 1 else rows[pairs.reshape(-1)]
            # Scores with keys that were not opened are garbage: zeroed before anything is truncated.
            scores = ops.entries(scores, pairs)
            scores = s.truncate(scores if allowed is None else ops.select(scores, allowed, 0))
        weights = await model.partial.run(
            s,
            model.suite.softmax,
            scores,
            (config.heads * tokens, total),
            (allowed,),
            (None if tokens == 1 else rows,),
        )
        # Rows of V that were not opened need weights that are zero at both servers, not zero up to rounding.
        weights = weights if allowed is None else ops.select(weights, allowed, 0)
        with s.scope("values"):
            spread = ops.spread(weights, pairs)
            mixed = await selective_matmul(s, spread, state.values, x_rows=pairs, y_rows=read, work=work)
            mixed = s.truncate(ops.spread(ops.entries(mixed, pairs), pairs))
        mixed = mixed.reshape((config.heads, tokens, width)).swapaxes(0, 1)
        mixed = mixed.reshape((tokens, config.heads * width))
        active = np.repeat(groups.reshape(tokens, -1).any(0), width)
        with s.scope("output"):
            output = await simm(s, mixed, model.linear.matrix(s, f"{name}/o/weight"), active)
            return model.linear.biased(s, f"{name}/o", s.truncate(output))
