"""One-sided noise on a count: a discrete Laplace distribution, shifted and cut so that it never goes below zero.

P(k) is proportional to e^(-epsilon |k - s|) for k from 0 to 2s. Revealing count + noise is (epsilon, delta)
differentially private for counts that differ by one; delta is what the two ends of the range give away, so it is
never pure. Source: reconstruction after Ghosh, Roughgarden and Sundararajan 2009 (geometric mechanism), with the
truncation accounted for exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.settings import Noise

__all__ = ["Mechanism", "mechanism"]

_WHOLE = 1 << 64
_EXACT = Context(prec=80)
_SCALE = 10**40


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A noise distribution on 0 to 2 `shift`, exact to the last bit: P(k) = weights[k] / 2^64.

    `achieved` is the smallest delta at which it is (epsilon, delta)-private, computed from the weights, rounded up.
    """

    noise: Noise
    shift: int
    weights: tuple[int, ...]
    achieved: Fraction
    thresholds: NDArray[np.uint64]

    @property
    def largest(self) -> int:
        """Largest noise that is ever drawn."""
        return 2 * self.shift

    def draw(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Turn uniform 64-bit words into noise, one each: integer comparisons and nothing else."""
        return np.searchsorted(self.thresholds, words.view(np.uint64), side="right").astype(np.int64)


@lru_cache(maxsize=64)
def mechanism(noise: Noise) -> Mechanism:
    """Return the mechanism of the smallest shift that keeps the stated delta; 852 at epsilon 0.01, delta 1e-6.

    s = ceil(ln((1 - e^-eps) / ((1 + e^-eps) delta)) / eps), which leaves out what the far end takes from the sum
    of weights: where that matters the shift is larger, until the exact delta is no more than the stated one.
    """
    epsilon = noise.epsilon
    shift = _first_shift(noise)
    while True:
        weights = _weights(epsilon, shift)
        achieved = _delta(weights, epsilon)
        if achieved <= Fraction(noise.delta):
            break
        shift += 1
    # The last threshold would be 2^64, which no word reaches.
    ends = np.cumsum(np.array(weights[:-1], np.uint64), dtype=np.uint64)
    return Mechanism(noise, shift, weights, achieved, ends)


def _first_shift(noise: Noise) -> int:
    """Return the shift by the formula: in decimals, so that it is the same on every machine."""
    with localcontext(_EXACT):
        epsilon = Decimal(noise.epsilon)
        step = (-epsilon).exp()
        needed = ((1 - step) / ((1 + step) * Decimal(noise.delta))).ln() / epsilon
        return max(0, int(needed.to_integral_value(ROUND_CEILING)))


def _weights(epsilon: float, shift: int) -> tuple[int, ...]:
    """Return the probabilities of 0 to 2 shift in units of 2^-64; what rounding down leaves goes to the middle."""
    with localcontext(_EXACT):
        step = (-Decimal(epsilon)).exp()
        falling = [Decimal(1)]
        for _ in range(shift):
            falling.append(falling[-1] * step)
        total = 1 + 2 * sum(falling[1:], Decimal(0))
        side = [int(each * _WHOLE / total) for each in falling[1:]]
    return (*reversed(side), _WHOLE - 2 * sum(side), *side)


def _delta(weights: tuple[int, ...], epsilon: float) -> Fraction:
    """Return the sum over outcomes of max(0, P(k) - e^epsilon P(k - 1)), rounded up in the 40th digit.

    The distribution is symmetric, so the other direction gives the same.
    """
    with localcontext(_EXACT):
        factor = int(Decimal(epsilon).exp() * _SCALE)
    over = 0
    before = 0
    for weight in weights:
        over += max(0, weight * _SCALE - factor * before)
        before = weight
    return Fraction(over, _SCALE * _WHOLE)
