"""Comet's forward pass: the dense decoder with attention and feed-forward over what a predictor says is active."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.attention import SparseAttention
from comet_sim.comet.components import Components, active_columns
from comet_sim.comet.indexing import Call, Part, column_order, row_order, shuffle_weights, why_opened
from comet_sim.comet.kv_cache import CometCache, LayerCache
from comet_sim.comet.masks import Opener
from comet_sim.comet.predictor import predict, predictor_shapes
from comet_sim.comet.privacy import hide_counts, noise_of
from comet_sim.comet.record import SparsityRecord
from comet_sim.comet.rescaling import rescale_some, rescale_where
from comet_sim.comet.settings import CometSettings
from comet_sim.comet.simm import simm
from comet_sim.comet.somm import somm
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import Layout, PrivateDecoder, Turns
from comet_sim.mpc.beaver import multiply
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.partial import Partial
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.mpc.suite import Suite
from comet_sim.mpc.tensor import WORD_BYTES, ShapeTensor
from comet_sim.mpc.truncation import rescale

__all__ = ["CometDecoder", "extra_shapes"]

Mask = NDArray[np.bool_]


def extra_shapes(config: ModelConfig, settings: CometSettings) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the predictors' weights, which the owner shares with the model's."""
    found: dict[str, tuple[int, ...]] = {}
    for i in range(config.layers):
        name = f"layer{i}/predictor"
        if settings.heads:
            found |= predictor_shapes(f"{name}/heads", config.hidden, settings.rank_heads, config.heads)
        if settings.ffn:
            found |= predictor_shapes(f"{name}/ffn", config.hidden, settings.rank_ffn, config.ffn)
    return found


@dataclass(slots=True)
class Versions:
    """How many secret orders the columns of each layer's parts have been put into."""

    count: dict[tuple[Part, int], int] = field(default_factory=dict)

    def of(self, part: Part, layer: int) -> int:
        """Return how many."""
        return self.count.get((part, layer), 0)

    def advance(self, part: Part, layer: int) -> int:
        """Return the number of the next order, and count it."""
        version = self.of(part, layer)
        self.count[part, layer] = version + 1
        return version


class CometDecoder(PrivateDecoder):
    """One server's view of the model under Comet; the dealer walks it too.

    `weights` holds the predictors' weights beside the model's; orders of columns change it in place.
    """

    __slots__ = (
        "_ahead",
        "_cache",
        "_versions",
        "attention",
        "batch",
        "opener",
        "partial",
        "passes",
        "position",
        "record",
        "settings",
    )

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Any],
        exponents: Mapping[str, int],
        suite: Suite,
        layout: Layout,
        settings: CometSettings,
        opener: Opener,
    ) -> None:
        own = dict(weights)
        super().__init__(config, own, exponents, suite, layout)
        self.settings = settings
        self.opener = opener
        self.partial = Partial()
        # What server 0 writes down for the summary; nobody else does.
        self.record: SparsityRecord | None = None
        # How many passes a run takes at most, the prompt's counted: public. None: nobody says.
        self.passes: int | None = None
        self.position = 0
        self.batch = 1
        self._cache: CometCache | None = None
        # The next feed-forward's mask, where it was predicted while attention ran.
        self._ahead: tuple[Call, Mask] | None = None
        self._versions = Versions()
        self.attention = SparseAttention(self)

    def new_cache(self, batch: int = 1) -> CometCache:  # type: ignore[override]
        """Return an empty KV cache for so many sequences of equal length."""
        cache = CometCache([LayerCache() for _ in range(self.config.layers)], batch)
        if self.record is not None:
            self.record.cache = cache
        return cache

    async def forward(self, s: Session, onehot: Any, cache: CometCache) -> Any:  # type: ignore[override]
        """Return shares of the next tokens' logits (B, V) after m tokens of B sequences, one-hot rows (B m, V)."""
        self.position, self.batch, self._cache = cache.length, cache.batch, cache
        lasts = self.settings.columns
        # The prompt pass is the first step: R steps on, its columns have served R times.
        if isinstance(lasts, int) and cache.steps and cache.steps % lasts == 0:
            await self._renew_orders(s, cache)
        cache.steps += 1
        return await super().forward(s, onehot, cache)  # type: ignore[arg-type]

    def passes_left(self, cache: CometCache) -> int | None:
        """Return how many passes may follow the present one."""
        return None if self.passes is None else max(0, self.passes - cache.steps)

    # -- secret orders --------------------------------------------------------------------------------

    async def prepare(self, s: Session) -> None:
        """Put all columns into a secret order, before the user is served: one dense pass of traffic."""
        if self.settings.columns == "none":
            return
        for layer in range(self.config.layers):
            with s.scope(f"layer{layer}"):
                if self.settings.heads:
                    await self.reorder(s, "heads", layer)
                if self.settings.ffn and self.settings.columns != "per-call":
                    await self.reorder(s, "ffn", layer)

    async def _renew_orders(self, s: Session, cache: CometCache) -> None:
        """Put every layer's columns, and its cache, into the next secret order: all layers side by side."""

        async def renew(child: Session, layer: int) -> None:
            with child.scope(f"layer{layer}"):
                if self.settings.heads:
                    order = await self.reorder(child, "heads", layer)
                    with child.scope("order/cache"):
                        await cache.layers[layer].reorder(child, order, self.opener)
                if self.settings.ffn:
                    await self.reorder(child, "ffn", layer)

        layers = range(self.config.layers)
        await s.gather(*(lambda child, layer=layer: renew(child, layer) for layer in layers))

    async def skip_preparation(self) -> None:
        """Count the orders that `prepare` makes: for a dealer that dealt them before."""
        if self.settings.columns == "none":
            return
        for layer in range(self.config.layers):
            if self.settings.heads:
                self._advance("heads", layer)
            if self.settings.ffn and self.settings.columns != "per-call":
                self._advance("ffn", layer)

    async def reorder(self, s: Session, part: Part, layer: int) -> Order:
        """Put a layer's neurons or heads into the next secret order; return that of neurons, or of K/V heads."""
        version = self._advance(part, layer)
        with s.scope(f"order/{part}"):
            await shuffle_weights(s, self.config, self._shares, part, layer, version)
        return column_order(self.config, part, layer, version, coarse=part == "heads")

    def _advance(self, part: Part, layer: int) -> int:
        """Return the number of a part's next order; its weights are new tensors, which need masks of their own."""
        self.linear.renew(f"layer{layer}/{'attention' if part == 'heads' else 'ffn'}/")
        return self._versions.advance(part, layer)

    @property
    def _shares(self) -> dict[str, Any]:
        assert isinstance(self.weights, dict)
        return self.weights

    # -- masks ----------------------------------------------------------------------------------------

    async def active(self, s: Session, part: Part, layer: int, x: Any, start: int) -> Any:
        """Return XOR shares of the predicted bits (m, neurons or heads) for normalised inputs x (m, d)."""
        delta = self.settings.delta_ffn if part == "ffn" else self.settings.delta_heads
        with s.scope("predictor"):
            return await predict(s, self.weights, f"layer{layer}/predictor/{part}", x, delta)

    async def opened(self, s: Session, bits: Any, call: Call) -> Mask:
        """Open a mask, its counts under noise if they are to be, and enter what servers can link in the ledger."""
        noise = noise_of(self.settings, call.part)
        with s.scope("indexing"):
            if noise is not None:
                with s.scope("privacy"):
                    bits = await hide_counts(s, bits, noise, call)
            mask = await self.opener.open(s, bits, call)
            if s.index == 0:
                what = f"active {'neurons' if call.part == 'ffn' else 'heads'}"
                s.reveal("server0,server1", what, why_opened(self.settings, call), bits.size)
        if self.record is not None:
            self.record.opened(call, mask)
        return mask

    def call(self, part: Part, layer: int, start: int, tokens: int, *, reordered: bool = False) -> Call:
        """Describe the mask of a layer's part for a pass over `tokens` tokens of each sequence."""
        rows = row_order(layer, start, self.batch * tokens) if reordered else None
        return Call(part, layer, start, tokens, self._versions.of(part, layer), rows, self.batch)

    # -- layers ---------------------------------------------------------------------------------------

    async def _attention(
        self, s: Session, layer: int, x: Any, cache: Any, allowed: Any, turns: Turns | None
    ) -> Any:
        hidden = await self._norm(s, f"layer{layer}/attention/norm", x)

        async def attend(child: Session) -> Any:
            way = self.attention.run if self.settings.heads else self.attention.dense
            return await way(child, layer, hidden, cache, turns)

        if not (self.settings.predictor_lookahead and self.settings.ffn):
            return await attend(s)
        y, self._ahead = await s.gather(attend, lambda child: self._look_ahead(child, layer, hidden))
        return y

    async def _look_ahead(self, s: Session, layer: int, hidden: Any) -> tuple[Call, Mask]:
        """Predict and open the mask of the layer's neurons from the layer's normalised input."""
        with s.scope("ahead"):
            call, bits = await self._predicted(s, layer, hidden)
            if call.rows is not None:
                with s.scope("indexing"), s.scope("shuffle"):
                    (bits,) = await shuffle(s, call.rows, [Shuffled(bits, bits=True)])
            return call, await self.opened(s, bits, call)

    async def _predicted(self, s: Session, layer: int, hidden: Any) -> tuple[Call, Any]:
        """Return XOR shares of the predicted bits of a layer's neurons, in the order of their rows, and the call."""
        settings, rows = self.settings, hidden.shape[0]
        if settings.columns == "per-call":
            await self.reorder(s, "ffn", layer)
        bits = await self.active(s, "ffn", layer, hidden, self.position)
        reordered = settings.rows == "per-call" and rows > 1
        return self.call("ffn", layer, self.position, rows // self.batch, reordered=reordered), bits

    async def _feed_forward(self, s: Session, name: str, x: Any) -> Any:
        """Return the feed-forward's output; beside it, look ahead for the next layer, or the next pass's first."""
        settings, cache = self.settings, self._cache
        if not (settings.heads and settings.cache_lookahead) or cache is None:
            return await self._neurons(s, name, x)
        layer = (int(name.split("/")[0].removeprefix("layer")) + 1) % self.config.layers
        state = cache.layers[layer]
        # Whether to is public and the same for the dealer: no mask has a say in it.
        if not state.length or (layer == 0 and self.passes_left(cache) == 0):
            return await self._neurons(s, name, x)
        projection = self.attention.projection
        weight = projection.refill_weight(s, layer)
        y, (keys, values, filled) = await s.gather(
            lambda child: self._neurons(child, name, x),
            lambda child: projection.look_ahead(child, layer, cache, weight),
        )
        state.fill(s, keys, values, filled)
        state.mark(cache.counts, filled, ahead=True)
        return y

    async def _neurons(self, s: Session, name: str, x: Any) -> Any:
        if not self.settings.ffn:
            return await super()._feed_forward(s, name, x)
        config, settings, ops = self.config, self.settings, s.ops
        layer, rows = int(name.split("/")[0].removeprefix("layer")), x.shape[0]
        hidden = await self._norm(s, f"{name}/norm", x)
        if self._ahead is None:
            call, bits = await self._predicted(s, layer, hidden)
            if call.rows is not None:
                with s.scope("indexing"), s.scope("shuffle"):
                    hidden, bits = await shuffle(s, call.rows, [Shuffled(hidden), Shuffled(bits, bits=True)])
            mask = await self.opened(s, bits, call)
        else:
            (call, mask), self._ahead = self._ahead, None
            if call.rows is not None:
                with s.scope("indexing"), s.scope("shuffle"):
                    (hidden,) = await shuffle(s, call.rows, [Shuffled(hidden)])
        whole = (rows * config.ffn,)
        firsts = ["gate", "up"] if config.gated else ["fc1"]
        with s.scope("gate_up" if config.gated else "fc1"):
            inner, found = await self.products(s, [f"{name}/{part}" for part in firsts], hidden, mask)
        if self.record is not None:
            self.record.worked(call, mask, found)
        # Only wanted entries go through the non-linearity; both servers' shares of the others are zero.
        values = [ops.entries(part, mask) for part in inner]
        shape = ShapeTensor(whole)
        entries = await self.partial.run(s, self.suite.activation, values[0], whole, (config.activation,))
        if config.gated:
            with s.scope("product"):
                product = await self.partial.run(s, multiply, entries, whole, (values[1],), (shape,))
                entries = await rescale_some(s, self.partial, product, whole)
        active = ops.spread(entries, mask)
        last = "down" if config.gated else "fc2"
        with s.scope(last):
            weight = self.linear.matrix(s, f"{name}/{last}/weight")
            y = await simm(s, active, weight, active_columns(mask), dealing=settings.simm)
            if settings.simm == "counts" and s.index == 0:
                s.reveal("dealer", "number of active neurons", "it deals for as many columns", config.ffn)
            y = self.linear.biased(s, f"{name}/{last}", await rescale(s, y))
        if call.rows is not None:
            with s.scope("indexing"), s.scope("unshuffle"):
                (y,) = await shuffle(s, call.rows, [Shuffled(y)], inverse=True)
        return y

    async def products(
        self, s: Session, names: list[str], x: Any, mask: Mask
    ) -> tuple[list[Any], Components]:
        """Return x times several weights, with biases, where the mask (m, n) holds and zero elsewhere."""
        weight = self.linear.matrix(s, *(f"{name}/weight" for name in names))
        repeated = np.concatenate([mask] * len(names), 1)
        product, found = await somm(s, x, weight, repeated, way=self.settings.linear)
        product = await rescale_where(s, self.partial, product, repeated)
        width = mask.shape[1]
        parts = [product[:, i * width : (i + 1) * width] for i in range(len(names))]
        for i, name in enumerate(names):
            bias = self.weights.get(f"{name}/bias")
            if bias is not None:
                s.charge(0, WORD_BYTES * 3 * parts[i].size)
                parts[i] = s.ops.select(parts[i] + bias, mask, 0)
        return parts, found
