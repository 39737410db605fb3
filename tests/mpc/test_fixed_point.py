"""Fixed-point functions must stay within the error they state, over the whole range they state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpc_cases import ACCURATE, CAUSAL, CRYPTEN, derandomised, with_steps

from comet_sim.mpc import beaver, functions
from comet_sim.mpc.truncation import scaled
from comet_sim.testing import Public, run_protocol

ULP = 2.0**-16
WORST = 0.012  # error of a softmax entry with CrypTen's own steps
exp = with_steps(functions.exp)
reciprocal = with_steps(functions.reciprocal)
inverse_sqrt = with_steps(functions.inverse_sqrt)
softmax = with_steps(functions.softmax)


def softmax_of(x, allowed=None):
    x = np.where(allowed, x, -np.inf) if allowed is not None else x
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def norm_of(x, epsilon=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)


@pytest.mark.parametrize("bits", [12, 16, 20])
def test_products_of_numbers(bits):
    """Half a unit of each operand's encoding, scaled by the other, and one unit of truncation."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-30, 30, (2, 1000))

    async def product(s, a, b):
        return s.truncate(await beaver.multiply(s, a, b))

    error = abs(run_protocol(product, x, y, bits=bits).values - x * y)
    assert (error <= 2.0**-bits * (0.5 * abs(x) + 0.5 * abs(y) + 2)).all()


@derandomised
@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=30), st.integers(1, 20))
def test_truncation_and_division_are_off_by_one_unit_at_most(values, amount):
    from comet_sim.testing import Integers

    async def program(s, x):
        return s.truncate(x, amount), s.divide(x, amount)

    x = np.array(values)
    truncated, divided = run_protocol(program, Integers(x)).raw
    assert (abs(truncated - x / 2**amount) <= 1).all()
    assert (abs(divided - x / amount) <= 1).all()


def test_scale_by_a_public_number():
    async def program(s, x):
        return await scaled(s, x, 1 / np.sqrt(24))

    x = np.linspace(-100, 100, 999)
    error = abs(run_protocol(program, x).values - x / np.sqrt(24))
    assert (error <= ULP * (0.5 * abs(x) + 2)).all()


@pytest.mark.parametrize("steps", [CRYPTEN, ACCURATE], ids=["crypten", "accurate"])
def test_exp_over_the_scores_of_a_softmax(steps):
    """Relative error x^2/2^(t+1) of the approximation, and 2^(t+1) units of rounding times e^x."""
    x = np.linspace(-16, 0, 5001)
    error = abs(run_protocol(with_steps(functions.exp, steps), x).values - np.exp(x))
    assert (
        error <= np.exp(x) * x**2 / 2 ** (steps.exp + 1) + 2 * 2**steps.exp * ULP * np.exp(x) + 16 * ULP
    ).all()


def test_exp_far_below_zero_is_zero():
    """The approximation turns round at -256 and diverges below -512: masked scores must not get there."""
    x = np.linspace(-500, -30, 471)
    assert abs(run_protocol(exp, x).values).max() <= 2 * ULP
    assert run_protocol(exp, np.array([-530.0])).values[0] > 100


def test_reciprocal_over_its_range():
    """Within x^2 units in the last place of 1: a unit of the truncated y^2, times x, relative to 1/x."""
    x = np.geomspace(0.02, 128, 5001)
    error = abs(run_protocol(reciprocal, x).values * x - 1)
    assert (error <= ULP * (1.1 * x**2 + 4 * x + 30)).all()


def test_inverse_square_root_over_its_range():
    """CrypTen's three Newton steps: half a percent from 0.1 to 154; with six the rest is rounding."""
    x = np.geomspace(0.1, 154, 5001)
    error = abs(run_protocol(inverse_sqrt, x).values * np.sqrt(x) - 1)
    assert error.max() < 5.5e-3
    longer = run_protocol(with_steps(functions.inverse_sqrt, ACCURATE), x).values
    assert (abs(longer * np.sqrt(x) - 1) <= ULP * (8 * np.sqrt(x) + 8)).all()


LENGTHS = (2, 3, 16, 17, 33, 128, 129, 250, 255, 512, 1024, 2048)


@pytest.mark.parametrize("length", LENGTHS)
def test_softmax_of_long_and_short_rows(length):
    """Entries within 0.012 and sums within 0.003 for up to 2,048 entries, flat rows and peaked ones alike.

    The error is the exponential's: a sum of entries 3 below the largest is 2% short. Rows of equal scores
    once summed to 1.15 at 250 entries: the reciprocal is off by a quarter near 128, and garbage near 250.
    """
    rng = np.random.default_rng(length)
    rows = [np.zeros(length), np.full(length, -3.0), rng.normal(size=length), 5 * rng.normal(size=length)]
    rows.append(np.where(np.arange(length) == length // 2, 4.0, -200.0))
    x = np.stack(rows)
    got = run_protocol(softmax, x, Public(None)).values
    assert abs(got - softmax_of(x)).max() < WORST
    assert abs(got.sum(-1) - 1).max() < 0.003
    equal = got[:2]
    assert np.ptp(equal, axis=1).max() <= 3 * ULP, "equal scores have equal weights"


@pytest.mark.parametrize("length", [129, 2048])
def test_accurate_softmax(length):
    x = 3 * np.random.default_rng(0).normal(size=(3, length))
    got = run_protocol(with_steps(functions.softmax, ACCURATE), x, Public(None)).values
    assert abs(got - softmax_of(x)).max() < 0.004


@pytest.mark.parametrize("masked_score", [0.0, 30.0, -30.0, -900.0])
def test_masked_entries_weigh_nothing(masked_score):
    """Whatever the hidden score: -900 made the exponential explode, +30 won the maximum."""
    x = np.random.default_rng(1).normal(size=(2, 3, 6))
    x = np.where(CAUSAL, x, masked_score)
    run = run_protocol(softmax, x, Public(CAUSAL), audit=True)
    got = run.values
    assert run.auditor.wraps == 0, "a masked entry must not blow up on its way to being zeroed either"
    assert abs(got - softmax_of(x, CAUSAL)).max() < WORST
    assert not got[np.broadcast_to(~CAUSAL, got.shape)].any() or abs(got[..., ~CAUSAL]).max() <= ULP


def test_a_causal_prompt_of_many_tokens():
    """The first row sees one entry, the last all of them: the same public bound serves both."""
    tokens = 150
    allowed = np.tri(tokens, dtype=bool)
    x = 2 * np.random.default_rng(2).normal(size=(tokens, tokens))
    got = run_protocol(softmax, x, Public(allowed)).values
    assert abs(got - softmax_of(x, allowed)).max() < WORST
    assert abs(got.sum(-1) - 1).max() < 0.003


def test_softmax_of_one_entry_costs_nothing():
    run = run_protocol(softmax, np.full((3, 1), -7.0), Public(None))
    assert (run.values == 1).all()
    assert not run.messages[1:] and run.bytes == 0


@pytest.mark.parametrize(("scale", "exponent"), [(0.4, 0), (0.4, 2), (1.0, 0), (2.0, 2), (9.0, 0)])
def test_layer_norm(scale, exponent):
    """Half a percent (three Newton steps) of the normalised value while 4^exponent * variance is in range."""
    rng = np.random.default_rng(0)
    x, weight, bias = scale * rng.normal(size=(6, 64)) + 1.5, rng.normal(size=64), rng.normal(size=64)

    async def program(s, *inputs):
        return await functions.layer_norm(s, *inputs, exponent=exponent, epsilon=1e-5, n=CRYPTEN)

    got = run_protocol(program, x, weight, bias).values
    true = norm_of(x) * weight + bias
    assert (abs(got - true) <= 0.006 * abs(norm_of(x) * weight) + 200 * ULP).all()


def test_layer_norm_of_small_values_needs_its_exponent():
    """The demo model's first norm: variance 0.01 is out of range, times a public 16 squared it is in range."""
    x = 0.1 * np.random.default_rng(0).normal(size=(4, 64))
    ones, zeros = np.ones(64), np.zeros(64)

    def worst(exponent):
        async def program(s, *inputs):
            return await functions.layer_norm(s, *inputs, exponent=exponent, epsilon=1e-5, n=CRYPTEN)

        return abs(run_protocol(program, x, ones, zeros).values - norm_of(x)).max()

    assert worst(0) > 0.5
    assert worst(4) < 0.03


def test_epsilon_is_scaled_with_the_input():
    """A variance near epsilon, scaled into range: epsilon must grow by the same public power."""
    x = 0.004 * np.random.default_rng(0).normal(size=(4, 64))

    async def program(s, *inputs):
        return await functions.layer_norm(s, *inputs, exponent=8, epsilon=1e-5, n=CRYPTEN)

    got = run_protocol(program, x, np.ones(64), np.zeros(64)).values
    assert abs(got - norm_of(x)).max() < 0.03
    assert abs(norm_of(x, 0.0) - norm_of(x)).max() > 0.3, "epsilon matters here"


def test_layer_norm_of_large_values_may_be_scaled_down():
    """A negative exponent divides: variance 1,600 is far out of range, a sixteenth of each value is not."""
    x = 40 * np.random.default_rng(0).normal(size=(4, 64))

    async def program(s, *inputs):
        return await functions.layer_norm(s, *inputs, exponent=-4, epsilon=1e-5, n=CRYPTEN)

    got = run_protocol(program, x, np.ones(64), np.zeros(64)).values
    assert abs(got - norm_of(x)).max() < 0.03


@derandomised
@given(st.integers(1, 4), st.integers(2, 40), st.integers(0, 2**32))
def test_softmax_of_any_shape(rows, length, seed):
    x = 4 * np.random.default_rng(seed).normal(size=(rows, length))
    got = run_protocol(softmax, x, Public(None), seed=seed).values
    assert got.shape == x.shape
    assert abs(got - softmax_of(x)).max() < WORST
