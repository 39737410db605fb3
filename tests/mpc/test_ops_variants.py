"""Ways to go where a protocol has several: same results, and the costs that each states."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpc_cases import CRYPTEN, EDGES, derandomised, ring_arrays, uniform

from comet_sim.baselines import SUITES
from comet_sim.errors import InputError
from comet_sim.mpc import activations, compare, maximum
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.testing import Integers, Public, run_protocol

LEAN = SUITES["crypten-lean"].variants
WAYS = ("pairwise", "log_reduction", "double_log_reduction", "accelerated_cascade", "tree")
ENTRIES = st.one_of(st.integers(-3, 3), st.integers(-(2**62) + 1, 2**62 - 1))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lean", [False, True], ids=["crypten", "lean"])
@settings(derandomised, max_examples=8)
@given(st.integers(1, 3), st.integers(1, 20), st.data())
def test_maximum_and_argmax_by_every_way(way, lean, rows, length, data):
    """Ties, negative rows, one entry: the maximum itself, and exactly one of the entries that have it."""
    choices = {"adder": "single-open", "where": "one-product", "argmax": False} if lean else {}
    v = Public(Variants(max=way, **choices))
    x = data.draw(ring_arrays((rows, length), ENTRIES))
    top = x.max(1, keepdims=True)
    assert np.array_equal(run_protocol(maximum.maximum, Integers(x), v).raw, top)
    chosen = run_protocol(maximum.argmax, Integers(x), v).raw
    assert np.isin(chosen, (0, 1)).all()
    assert (chosen.sum(1) == 1).all()
    assert np.array_equal((x * chosen).sum(1, keepdims=True), top)


@pytest.mark.parametrize("way", WAYS[1:])
@pytest.mark.parametrize("length", [4, 7, 8, 9, 24, 25, 26, 63, 64, 65, 120, 257])
def test_maximum_wherever_it_stands(way, length):
    """A row for a place of the largest entry: groups, remainders and odd ones out lose none."""
    places = np.unique(np.linspace(0, length - 1, 24, dtype=int))
    x = np.random.default_rng(length).integers(-9, 9, (len(places), length))
    x[np.arange(len(places)), places] = 50
    got = run_protocol(maximum.maximum, Integers(x), Public(Variants(max=way, argmax=False))).raw
    assert np.array_equal(got, np.full((len(places), 1), 50))


def test_the_adder_that_opens_once_is_exact():
    """Edges and random words, both servers' shares any: the last level's missing product is never used."""
    x = np.r_[np.array(EDGES, np.int64), uniform(0, 3000)]
    run = run_protocol(compare.arithmetic_to_bits, Integers(x), Public(LEAN))
    assert np.array_equal(run.xor, x)


@pytest.mark.parametrize("v", [CRYPTEN_WAY, LEAN], ids=["crypten", "lean"])
@derandomised
@given(ring_arrays(6, st.integers(-(2**40), 2**40)), ring_arrays(6), ring_arrays(6))
def test_compare_and_choose(v, condition, x, y):
    async def program(s, c, a, b):
        return await compare.where(s, await compare.less_than_zero(s, c, v), a, b, v)

    run = run_protocol(program, *map(Integers, (condition, x, y)))
    assert np.array_equal(run.raw, np.where(condition < 0, x, y))


# -- costs of what is not CrypTen's ---------------------------------------------------------------------

N = 1000
STEPS = Public(CRYPTEN)
OURS = [
    # program, inputs, choices; rounds, bytes and corrections an element
    (compare.arithmetic_to_bits, (), LEAN, 7, 152, 12),
    (compare.less_than_zero, (), LEAN, 8, 160, 13),
    (activations.erf, (STEPS,), CRYPTEN_WAY, 20, 336, 26),
    (activations.erf, (STEPS,), LEAN, 20, 280, 25),
    (activations.gelu, (STEPS,), CRYPTEN_WAY, 20, 336, 26),
    (activations.gelu, (STEPS,), LEAN, 20, 280, 25),
]


@pytest.mark.parametrize(("program", "inputs", "v", "rounds", "sent", "corrections"), OURS)
def test_costs(program, inputs, v, rounds, sent, corrections):
    """The right erf is cheaper than CrypTen's series (34 rounds, 376n); the adder deals no unused product."""
    run = run_protocol(program, np.zeros(N), *inputs, Public(v), exact=False)
    assert (run.rounds, run.bytes / N, run.corrections / N) == (rounds, sent, corrections)


@pytest.mark.parametrize(
    ("settings_of", "wrong", "named"),
    [
        (Iterations, {"chebyshev": 31}, "chebyshev"),
        (Iterations, {"chebyshev": 2}, "chebyshev"),
        (Iterations, {"sigmoid": 0}, "sigmoid"),
        (Iterations, {"exp": -1}, "exp"),
        (Iterations, {"erf": 2.5}, "erf"),
        (Variants, {"max": "bitonic"}, "log_reduction"),
        (Variants, {"adder": "fast"}, "single-open"),
        (Variants, {"argmax": "no"}, "argmax"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings_of, wrong, named):
    """Once they failed far away, or passed: no Newton step at all is no reciprocal."""
    with pytest.raises(InputError, match=named):
        settings_of(**wrong)
