"""Attention over active heads only: scores, softmax and output of active (token, head) pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.kv_cache import CometCache, LayerCache
from comet_sim.comet.projection import Projection
from comet_sim.comet.rescaling import rescale_some, rescale_where
from comet_sim.comet.selective import selective_matmul
from comet_sim.comet.simm import simm
from comet_sim.models.decoder import Turns
from comet_sim.mpc.session import Session
from comet_sim.mpc.truncation import rescale

if TYPE_CHECKING:
    from comet_sim.comet.decoder import CometDecoder

__all__ = ["SparseAttention"]

Mask = NDArray[np.bool_]


class SparseAttention:
    """Attention of a `CometDecoder`, layer by layer."""

    __slots__ = ("model", "projection")

    def __init__(self, model: CometDecoder) -> None:
        self.model = model
        self.projection = Projection(model)

    async def run(self, s: Session, layer: int, hidden: Any, cache: CometCache, turns: Turns | None) -> Any:
        """Return the attention output (B m, d) of normalised inputs (B m, d) of B sequences; the cache gains them."""
        model, config, batch = self.model, self.model.config, cache.batch
        name = f"layer{layer}/attention"
        tokens, start = hidden.shape[0] // batch, cache.length
        bits = await model.active(s, "heads", layer, hidden, start)
        heads = await model.opened(s, bits, model.call("heads", layer, start, tokens))
        groups = heads.reshape(batch, tokens, config.kv_heads, -1)
        queries = await self.projection.run(s, layer, hidden, cache, heads, turns)
        return await self._attend(s, name, queries, cache.layers[layer], groups, start)

    async def dense(self, s: Session, layer: int, hidden: Any, cache: CometCache, turns: Turns | None) -> Any:
        """Attend with every head active and no predictor: what a model without head skipping runs."""
        config, batch = self.model.config, cache.batch
        tokens, start = hidden.shape[0] // batch, cache.length
        name = f"layer{layer}/attention"
        heads = np.ones((batch * tokens, config.heads), bool)
        queries = await self.projection.dense(s, layer, hidden, cache, heads, turns)
        groups = heads.reshape(batch, tokens, config.kv_heads, -1)
        return await self._attend(s, name, queries, cache.layers[layer], groups, start)

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
            scores = scores if allowed is None else ops.select(scores, allowed, 0)
            scores = await rescale_some(s, model.partial, scores, (own * share * tokens, total))
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
            mixed = ops.spread(ops.entries(mixed, pairs), pairs)
            mixed = await rescale_where(s, model.partial, mixed, pairs)
        mixed = model._rows(mixed.reshape((own * share, tokens, width)), batch)
        active = np.repeat(groups.reshape(batch * tokens, -1).any(0), width)
        with s.scope("output"):
            output = await simm(s, mixed, model.linear.matrix(s, f"{name}/o/weight"), active)
            return model.linear.biased(s, f"{name}/o", await rescale(s, output))
