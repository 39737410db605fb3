"""Chance on a link: streams of integers, each named by the run's seed, the link and what is drawn."""

from __future__ import annotations

from fractions import Fraction

__all__ = ["Draws"]

_BLOCK = 256


class Draws:
    """A stream of evenly distributed 64-bit integers, the same on every machine (Philox, raw output)."""

    __slots__ = ("_block", "_source")

    def __init__(self, seed: int, link: str, what: str) -> None:
        # numpy takes long to import, and only links with chance in them need it
        from comet_sim.kernel.streams import generator

        self._source = generator(seed, "network", link, what).bit_generator
        self._block: list[int] = []

    def below(self, limit: int) -> int:
        """Return an integer from 0 to `limit` - 1."""
        return self._next() * limit >> 64

    def chance(self, probability: Fraction) -> bool:
        """Return whether an event of this probability happens, to within 2^-64."""
        return self._next() * probability.denominator < probability.numerator << 64

    def _next(self) -> int:
        if not self._block:
            self._block = self._source.random_raw(_BLOCK).tolist()
        return self._block.pop()
