"""Private linear layers: a server's shares of the weights, and products with them in the ways a layout allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.masking import Masked
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.mpc.truncation import rescale

__all__ = ["LinearLayers", "Together"]

Together = Literal["fused", "parallel", "sequence"]
"""Several products of one input: as one product, side by side, or in a row."""


class LinearLayers:
    """Shares of the weights by canonical name; with `reuse`, matrices are opened once under fixed masks."""

    __slots__ = ("_masked", "_version", "reuse", "shares")

    def __init__(self, shares: Mapping[str, Any], *, reuse: bool) -> None:
        self.shares = shares
        self.reuse = reuse
        self._masked: dict[str, Masked] = {}
        self._version = 0

    def matrix(self, s: Session, *names: str) -> Any:
        """Return a weight matrix as the operand of a product: several side by side if several are named."""
        if self.reuse and names[0] in self._masked:
            return self._masked[names[0]]
        shares = [self.shares[name] for name in names]
        share = shares[0] if len(shares) == 1 else s.ops.concat(shares, 1)
        if not self.reuse:
            return share
        masked = self._masked[names[0]] = Masked(s, names[0], share, version=self._version)
        return masked

    def renew(self, prefix: str) -> None:
        """Drop the fixed masks of weights that have changed: a new version of a tensor needs an independent mask."""
        for name in [name for name in self._masked if name.startswith(prefix)]:
            del self._masked[name]
        self._version += 1

    async def apply(self, s: Session, name: str, x: Any) -> Any:
        """Multiply x (m, in) by a weight (in, out), and add the bias if any: 1 round, 8 (m in + in out) bytes."""
        product = await rescale(s, await matmul(s, x, self.matrix(s, f"{name}/weight")))
        return self.biased(s, name, product)

    async def apply_all(self, s: Session, names: Sequence[str], x: Any, together: Together) -> list[Any]:
        """Apply several layers to one input.

        `fused`: 1 round, the input sent once. `parallel`: 1 round, `sequence`: one each, the input sent to each.
        """
        if together == "sequence":
            return [await self.apply(s, name, x) for name in names]
        if together == "parallel":
            return await s.gather(*(lambda child, name=name: self.apply(child, name, x) for name in names))
        product = await rescale(s, await matmul(s, x, self.matrix(s, *(f"{name}/weight" for name in names))))
        ends = np.cumsum([self.shares[f"{name}/weight"].shape[1] for name in names]).tolist()
        starts = [0, *ends[:-1]]
        parts = zip(names, starts, ends, strict=True)
        return [self.biased(s, name, product[:, start:end]) for name, start, end in parts]

    def biased(self, s: Session, name: str, product: Any) -> Any:
        """Add a layer's bias, if it has one: local."""
        bias = self.shares.get(f"{name}/bias")
        if bias is None:
            return product
        s.charge(0, WORD_BYTES * 3 * product.size)
        return product + bias
