"""Where a run's masks come from: what the predictor's bits open to, or a given mask in their place.

A given mask (the oracle's or a recorded one) enters as an ideal functionality: no party of the protocol knows it,
and it knows the secret orders, so that servers see exactly what they would see had a predictor found it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.indexing import Call, Part, column_order, open_bits
from comet_sim.comet.privacy import IdealNoise
from comet_sim.errors import CometSimError
from comet_sim.models.config import ModelConfig
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session

__all__ = ["AllActive", "Given", "MaskSource", "Opened", "Opener", "SecretOrders", "stacked"]

Mask = NDArray[np.bool_]
MaskSource = Callable[[Part, int, int, int], Mask]
"""(part, layer, start, tokens) to the mask (tokens, neurons or heads) in the model's own order.

Of several sequences: (sequences * tokens, neurons or heads), the rows of a sequence side by side.
"""


def stacked(sources: Sequence[MaskSource]) -> MaskSource:
    """Return the masks of several sequences as one source; there is one source a sequence."""
    if len(sources) == 1:
        return sources[0]
    return lambda part, layer, start, tokens: np.concatenate(
        [source(part, layer, start, tokens) for source in sources]
    )


class Opener(Protocol):
    """How a server, or the dealer on its walk, learns a mask."""

    async def open(self, s: Session, bits: Any, call: Call) -> Mask:
        """Return the mask (m, n) that XOR shares of bits stand for, in the orders of the call."""

    async def move(self, s: Session, bits: Any, public: Mask, order: Order) -> Mask:
        """Open shuffled bits (n, ...) that were public before: `public`, in the order by its first axis."""


class AllActive:
    """The dealer's walk: it never learns a mask, and deals for every entry."""

    async def open(self, s: Session, bits: Any, call: Call) -> Mask:
        """Return ones."""
        await open_bits(s, bits)
        return np.ones(bits.shape, bool)

    async def move(self, s: Session, bits: Any, public: Mask, order: Order) -> Mask:
        """Return what was public."""
        await open_bits(s, bits)
        return public


class Opened:
    """An exact run with a trained predictor: the bits themselves."""

    async def open(self, s: Session, bits: Any, call: Call | None) -> Mask:
        """Open the bits."""
        mask = await open_bits(s, bits)
        if mask is None:
            raise CometSimError("a run over shapes has no bits to open: masks must be given")
        return mask

    async def move(self, s: Session, bits: Any, public: Mask, order: Order) -> Mask:
        """Open the bits."""
        return await self.open(s, bits, None)


class SecretOrders:
    """The orders of columns and rows that both servers' seeds make: for what is outside the protocol."""

    def __init__(self, config: ModelConfig, prgs: tuple[Prg, Prg]) -> None:
        self._config = config
        self._prgs = prgs
        self._columns: dict[tuple[Part, int], list[NDArray[np.int64]]] = {}

    def of(self, order: Order) -> NDArray[np.int64]:
        """Return one order: position i holds what was at its entry i."""
        return order.joined(*self._prgs)

    def columns(self, call: Call) -> NDArray[np.int64]:
        """Return the order of a call's columns after all versions: the model's own column at each place."""
        known = self._columns.setdefault((call.part, call.layer), [])
        while len(known) < call.versions:
            order = self.of(column_order(self._config, call.part, call.layer, len(known)))
            known.append(known[-1][order] if known else order)
        return known[call.versions - 1]

    def hide(self, mask: Mask, call: Call) -> Mask:
        """Put a mask in the model's own order into those of the call."""
        if call.versions:
            mask = mask[:, self.columns(call)]
        return mask if call.rows is None else mask[self.of(call.rows)]

    def show(self, mask: Mask, call: Call) -> Mask:
        """Put an opened mask back into the model's own order."""
        if call.rows is not None:
            mask = mask[np.argsort(self.of(call.rows))]
        return mask[:, np.argsort(self.columns(call))] if call.versions else mask


class Given:
    """Masks given from outside; the predictor's messages are sent all the same.

    `prgs` are the streams both servers share with the dealer: the secret orders follow from them. `noise` adds what
    hides counts.
    """

    def __init__(
        self,
        config: ModelConfig,
        source: MaskSource,
        prgs: tuple[Prg, Prg],
        noise: IdealNoise | None = None,
    ) -> None:
        self._source = source
        self._orders = SecretOrders(config, prgs)
        self._noise = noise

    async def open(self, s: Session, bits: Any, call: Call) -> Mask:
        """Send what opening the bits sends, and return the given mask in the orders of the call."""
        await open_bits(s, bits)
        mask = self._source(call.part, call.layer, call.start, call.tokens)
        if mask.shape != bits.shape:
            raise CometSimError(f"a mask of shape {mask.shape} was given where {bits.shape} is needed")
        hidden = self._orders.hide(mask, call)
        return hidden if self._noise is None else self._noise.hide(hidden, call)

    async def move(self, s: Session, bits: Any, public: Mask, order: Order) -> Mask:
        """Send what opening the bits sends, and return what was public in the new order."""
        await open_bits(s, bits)
        return public[self._orders.of(order)]
