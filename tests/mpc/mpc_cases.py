"""What the tests of operations share: settings of hypothesis, ring elements, iteration counts."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from comet_sim.mpc.functions import Iterations

CRYPTEN = Iterations()
ACCURATE = Iterations(exp=9, reciprocal=10, inverse_sqrt=6)

LOW, HIGH = -(2**63), 2**63 - 1
EDGES = (LOW, LOW + 1, -(2**62), -(2**32), -2, -1, 0, 1, 2, 2**16, 2**31, 2**32, 2**62, HIGH - 1, HIGH)

# Local truncation is right but with probability |x| / 2^63 an element: a test of fixed-point results must
# draw the same examples every time, or it fails once in a blue moon.
derandomised = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)

words = st.one_of(st.sampled_from(EDGES), st.integers(LOW, HIGH))


def ring_arrays(shape: st.SearchStrategy[tuple[int, ...]] | tuple[int, ...] | int, elements=words):
    return hnp.arrays(np.int64, shape, elements=elements)


def uniform(seed: int, *shape: int):
    return np.random.default_rng(seed).integers(LOW, HIGH, shape, dtype=np.int64, endpoint=True)


def with_steps(function, steps: Iterations = CRYPTEN):
    """Return a program that ends its arguments with the iteration counts."""

    async def program(s, *arguments):
        return await function(s, *arguments, steps)

    program.__name__ = function.__name__
    return program


CAUSAL = np.tri(3, 6, 3, dtype=bool)
