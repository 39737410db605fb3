"""A Fourier sum of a shared number in one round: the dealer knows sines and cosines of the phase that masks it.

With a dealt phase t, d = y - t is opened; sin(k(d + t)) = sin kd cos kt + cos kd sin kt is a sum of dealt shares
times public numbers. Source: SecFormer, Luo et al. 2024, which opens all of y; here y is scaled so that its period
is a power of two, which makes the sum of shares right modulo the period, and only a lane is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from comet_sim.mpc.correlated import WAVES, Waves
from comet_sim.mpc.lanes import swap_lanes
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.mpc.truncation import rescale, scaled

__all__ = ["sine_sum"]

_PERIOD_BITS = 5
"""A period is 2^5 after scaling: as many bits more than the fraction are opened."""
_LANE = 4


async def sine_sum(s: Session, x: Any, factors: Sequence[float], period: float, *, lane: int = _LANE) -> Any:
    """Return the sum over k of factors[k-1] sin(2 pi k x / period): 1 round, 4n bytes (`lane` n), 2kn corrections.

    Right for every x, as sines are. Off by a unit in the last place for each term, and by 2^-16 |x| from scaling.
    """
    with s.scope("sines"):
        bits = s.bits + _PERIOD_BITS
        waves = Waves(x.shape, len(factors), bits, s.bits)
        y = await scaled(s, x, (1 << _PERIOD_BITS) / period)
        piece = s.correlated(WAVES, waves)
        mine = y - piece.seeded[0]
        (theirs,) = await swap_lanes(s, lane, mine)
        dealt = await piece.corrected()
        s.charge(dealt.size, WORD_BYTES * 3 * dealt.size)
        if not s.ops.exact:
            return await rescale(s, s.ops.sum(dealt, 0)[0])
        # sin kd goes with cos kt, and cos kd with sin kt.
        opened = waves.of(mine + theirs)
        swapped = np.concatenate([opened[len(factors) :], opened[: len(factors)]])
        weights = np.tile(np.array(factors), 2).reshape(-1, *(1 for _ in x.shape))
        public = np.rint(swapped * weights).astype(np.int64)
        return await rescale(s, s.ops.sum(dealt * public, 0)[0])
