"""What several files of this directory use: settings of hypothesis, ring elements, and a program for each op."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from comet_sim.mpc import beaver, compare, functions, maximum
from comet_sim.mpc.functions import Iterations
from comet_sim.testing import Bits, Integers, Public

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


async def layer_norm(s, x, weight, bias):
    return await functions.layer_norm(s, x, weight, bias, exponent=2, epsilon=1e-5, n=CRYPTEN)


async def reveal(s, x):
    return (await s.open(x))[0]


async def side_by_side(s, x, *weights):
    return tuple(await s.gather(*(lambda c, w=w: beaver.matmul(c, x, w) for w in weights)))


def normal(*shape: int, seed: int = 0):
    return np.random.default_rng(seed).normal(size=shape)


CAUSAL = np.tri(3, 6, 3, dtype=bool)

# Every operation with inputs of a few elements.
OPS = {
    "open": (reveal, normal(3)),
    "multiply": (beaver.multiply, normal(3, 1), normal(4)),
    "square": (beaver.square, normal(5)),
    "matmul": (beaver.matmul, normal(2, 3, 4), normal(2, 4, 5)),
    "bit_and": (beaver.bit_and, Bits(uniform(1, 6)), Bits(uniform(2, 6))),
    "b2a": (beaver.bits_to_arithmetic, Bits([[0, 1], [1, 0]])),
    "a2b": (compare.arithmetic_to_bits, Integers(uniform(3, 4))),
    "less_than_zero": (compare.less_than_zero, normal(2, 3)),
    "equal": (compare.equal, Integers([1, 2, 3]), Integers([1, 5, 3])),
    "where": (compare.where, Integers([0, 1]), normal(2), normal(2)),
    "relu": (compare.relu, normal(7)),
    "maximum": (maximum.maximum, normal(2, 11)),
    "exp": (with_steps(functions.exp), -abs(normal(5))),
    "reciprocal": (with_steps(functions.reciprocal), 1 + abs(normal(5))),
    "inverse_sqrt": (with_steps(functions.inverse_sqrt), 1 + abs(normal(5))),
    "softmax": (with_steps(functions.softmax), normal(2, 3, 6), Public(None)),
    "softmax_masked": (with_steps(functions.softmax), normal(2, 3, 6), Public(CAUSAL)),
    "softmax_of_one": (with_steps(functions.softmax), normal(4, 1), Public(None)),
    "layer_norm": (layer_norm, normal(3, 8), normal(8), normal(8)),
    "forked": (side_by_side, normal(2, 3), normal(3, 4), normal(3, 4), normal(3, 2)),
}
