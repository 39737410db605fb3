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

__all__ = ["AllActive", "Given", "MaskSource", "Opened", "Opener", "stacked"]

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
        self._noise = noise
        self._config = config
        self._source = source
        self._prgs = prgs
        self._orders: dict[tuple[Part, int], list[NDArray[np.int64]]] = {}

    async def open(self, s: Session, bits: Any, call: Call) -> Mask:
        """Send what opening the bits sends, and return the given mask in the orders of the call."""
        await open_bits(s, bits)
        mask = self._source(call.part, call.layer, call.start, call.tokens)
        if mask.shape != bits.shape:
            raise CometSimError(f"a mask of shape {mask.shape} was given where {bits.shape} is needed")
        if call.versions:
            mask = mask[:, self._columns(call)]
        hidden = mask if call.rows is None else mask[call.rows.joined(*self._prgs)]
        return hidden if self._noise is None else self._noise.hide(hidden, call)

    async def move(self, s: Session, bits: Any, public: Mask, order: Order) -> Mask:
        """Send what opening the bits sends, and return what was public in the new order."""
        await open_bits(s, bits)
        return public[order.joined(*self._prgs)]

    def _columns(self, call: Call) -> NDArray[np.int64]:
        """Return the order of the columns after all versions: true column of each place."""
        known = self._orders.setdefault((call.part, call.layer), [])
        while len(known) < call.versions:
            order = column_order(self._config, call.part, call.layer, len(known)).joined(*self._prgs)
            known.append(known[-1][order] if known else order)
        return known[call.versions - 1]
