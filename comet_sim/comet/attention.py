"""Attention over active heads only: scores, softmax and output of active (token, head) pairs, K and V on demand."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
        """Return the attention output (B m, d) of m tokens of B sequences x (B m, d); the cache gains them."""
        model, config, batch = self.model, self.model.config, cache.batch
        name = f"layer{layer}/attention"
        tokens, start = x.shape[0] // batch, cache.length
        state = cache.layers[layer]
        hidden = await model._norm(s, f"{name}/norm", x)
        bits = await model.active(s, "heads", layer, hidden, start)
        heads = await model.opened(s, bits, model.call("heads", layer, start, tokens))
        groups = heads.reshape(batch, tokens, config.kv_heads, -1)
        active = np.asarray(groups.any(3))
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
        config, batch = self.model.config, cache.batch
        tokens, start = x.shape[0] // batch, cache.length
        name = f"layer{layer}/attention"
        hidden = await self.model._norm(s, f"{name}/norm", x)
        heads = np.ones((batch * tokens, config.heads), bool)
        fresh = np.ones((batch, tokens, config.kv_heads), bool)
        state = cache.layers[layer]
        queries = await self._separate(
            s, name, hidden, cache, state, heads, fresh, fresh, turns, refill=False
        )
        groups = heads.reshape(batch, tokens, config.kv_heads, -1)
        return await self._attend(s, name, queries, state, groups, start)

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
        batch = cache.batch
        kv = fresh.reshape(len(heads), -1)

        async def project(child: Session) -> tuple[Any, Any, Any]:
            with child.scope("qkv"):
                return await self._project(child, name, hidden, np.concatenate([heads, kv, kv], 1), batch)

        async def fill(child: Session) -> None:
            with child.scope("refill"):
                await self._refill(child, name, cache, state, active)

        if refill and cache.length:
            (queries, keys, values), _ = await s.gather(project, fill)  # type: ignore[misc]
        else:
            queries, keys, values = await project(s)
        queries, keys = self._placed(s, queries, keys, turns)
        state.append(s, hidden.reshape((batch, -1, hidden.shape[1])), keys, values, fresh)
        return queries

    async def _project(self, s: Session, name: str, x: Any, blocks: Mask, batch: int) -> tuple[Any, Any, Any]:
        """Return queries, keys, values (B heads, m, head dim) where `blocks` (B m, Q, K and V heads) holds."""
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
        queries, keys, values = (self.model._heads(part, batch) for part in split)
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
        missed = state.missed(np.asarray(active.any(1)))
        self._count(cache, state, active, missed)
        parts = [f"{name}/{part}" for part in "kv"]
        weight = linear.matrix(s, *(f"{part}/weight" for part in parts))
        # A row an entry of the cache, those of a sequence side by side.
        entries = missed.reshape(-1, config.kv_heads)
        inputs = state.inputs.reshape((len(entries), -1))
        mask = _widened(np.concatenate([entries, entries], 1), config.head_dim)
        if self.model.settings.policy == "immediate":
            product = await self._each(s, inputs, weight, entries)
        else:
            product, _ = await somm(s, inputs, weight, mask)
        product = s.truncate(product)
        biases = [self.model.weights.get(f"{part}/bias") for part in parts]
        if biases[0] is not None:
            product = s.ops.select(product + s.ops.concat(biases, 0), mask, 0)
        width = config.kv_heads * config.head_dim
        halves = (product[:, :width], product[:, width:])
        keys, values = (self.model._heads(part, cache.batch) for part in halves)
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
        model, config, batch = self.model, self.model.config, cache.batch
        past = cache.length
        missed = state.missed(np.asarray(active.any(1)))
        self._count(cache, state, active, missed)
        old = np.concatenate([np.zeros((batch, past, config.heads), bool), missed, missed], 2)
        new = np.concatenate([heads.reshape(batch, -1, config.heads), fresh, fresh], 2)
        blocks = np.concatenate([old, new], 1)
        hidden = hidden.reshape((batch, -1, hidden.shape[1]))
        with s.scope("qkv"):
            rows = s.ops.concat([state.inputs, hidden], 1).reshape((-1, hidden.shape[2]))
            blocks = blocks.reshape(len(blocks) * blocks.shape[1], -1)
            queries, keys, values = await self._project(s, name, rows, blocks, batch)
        turned = model._turned(s, keys[:, :past], model._turns(s, 0, past))
        state.fill(s, turned, values[:, :past], missed)
        queries, keys = self._placed(s, queries[:, past:], keys[:, past:], turns)
        state.append(s, hidden, keys, values[:, past:], fresh)
        return queries

    def _count(self, cache: CometCache, state: LayerCache, active: Mask, missed: Mask) -> None:
        counts = cache.counts
        read = int(active.any(1).sum()) * state.length
        counts.misses += int(missed.sum())
        counts.hits += read - int(missed.sum())

    # -- scores to output -------------------------------------------------------------------------------

    async def _attend(
        self, s: Session, name: str, queries: Any, state: LayerCache, groups: Mask, start: int
    ) -> Any:
        """Return the output (B m, d) of active (token, head) pairs: scores, softmax, values, output projection."""
        model, config, ops = self.model, self.model.config, s.ops
        batch, tokens = groups.shape[:2]
        total = start + tokens
        share, width = config.heads // config.kv_heads, config.head_dim
        own = batch * config.kv_heads
        stacked = (own, share * tokens, -1)
        # (B, m, K/V heads, query heads of each) to (B K/V heads, query heads * m): the rows of one operand.
        pairs = groups.transpose(0, 2, 3, 1).reshape(own, share * tokens)
        causal = np.tri(tokens, total, start, dtype=bool)
        # A K/V head of a sequence is read up to the last token for which it is active.
        last = np.where(groups.any(3), np.arange(tokens)[:, None], -1).max(1).reshape(own)
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
            rows = np.broadcast_to(causal, (own * share, tokens, total)).reshape(-1, total)
            allowed = None if tokens == 1 else rows[pairs.reshape(-1)]
            # Scores with keys that were not opened are garbage: zeroed before anything is truncated.
            scores = ops.entries(scores, pairs)
            scores = s.truncate(scores if allowed is None else ops.select(scores, allowed, 0))
        weights = await model.partial.run(
            s,
            model.suite.softmax,
            scores,
            (own * share * tokens, total),
            (allowed,),
            (None if tokens == 1 else rows,),
        )
        # Rows of V that were not opened need weights that are zero at both servers, not zero up to rounding.
        weights = weights if allowed is None else ops.select(weights, allowed, 0)
        with s.scope("values"):
            spread = ops.spread(weights, pairs)
            mixed = await selective_matmul(s, spread, state.values, x_rows=pairs, y_rows=read, work=work)
            mixed = s.truncate(ops.spread(ops.entries(mixed, pairs), pairs))
        mixed = model._rows(mixed.reshape((own * share, tokens, width)), batch)
        active = np.repeat(groups.reshape(batch * tokens, -1).any(0), width)
        with s.scope("output"):
            output = await simm(s, mixed, model.linear.matrix(s, f"{name}/o/weight"), active)
            return model.linear.biased(s, f"{name}/o", s.truncate(output))
