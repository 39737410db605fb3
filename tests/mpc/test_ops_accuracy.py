"""Every elementwise function must stay within the error it states, over the whole range it states."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpc_cases import ACCURATE, CRYPTEN, derandomised

from comet_sim.baselines import SUITES, CrypTen
from comet_sim.errors import InputError
from comet_sim.mpc import activations, compare, elementary, functions
from comet_sim.mpc.settings import CRYPTEN_WAY, Variants
from comet_sim.mpc.suite import ACTIVATIONS
from comet_sim.testing import Public, run_protocol

ULP = 2.0**-16
TAYLOR, CHEBYSHEV = Variants(erf="taylor"), Variants(tanh="chebyshev")
LEAN = SUITES["crypten-lean"].variants
# Other systems: tests/baselines.
CRYPTENS = {name: suite for name, suite in SUITES.items() if isinstance(suite, CrypTen)}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return x * (1 + erf(x / 2**0.5)) / 2


def gelu_tanh(x):
    return x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2


@dataclass(frozen=True)
class Case:
    """A function, what it stands for, its range (both signs when `signed`), and the error it may have at x."""

    function: Any
    truth: Any
    low: float
    high: float
    error: Any
    v: Variants | None = CRYPTEN_WAY
    signed: bool = True
    steps: Any = CRYPTEN


CASES = {
    "sigmoid": Case(activations.sigmoid, sigmoid, 0, 500, lambda x: 0.004),
    "sigmoid, lean": Case(activations.sigmoid, sigmoid, 0, 500, lambda x: 0.004, LEAN),
    "sigmoid, accurate": Case(activations.sigmoid, sigmoid, 0, 500, lambda x: 0.004, steps=ACCURATE),
    "sigmoid, chebyshev": Case(activations.sigmoid, sigmoid, 0, 2, lambda x: 1e-4, CHEBYSHEV),
    "tanh": Case(activations.tanh, np.tanh, 0, 250, lambda x: 0.008),
    "tanh, chebyshev": Case(activations.tanh, np.tanh, 0, 1, lambda x: 1e-4, CHEBYSHEV),
    "erf": Case(activations.erf, erf, 0, 17, lambda x: 0.005),
    "erf, accurate": Case(activations.erf, erf, 0, 17, lambda x: 0.005, steps=ACCURATE),
    "erf, taylor": Case(activations.erf, erf, 0, 1.5, lambda x: 0.001, TAYLOR),
    "gelu": Case(activations.gelu, gelu, 0, 24, lambda x: 0.002),
    "gelu, lean": Case(activations.gelu, gelu, 0, 24, lambda x: 0.002, LEAN),
    "gelu, taylor": Case(activations.gelu, gelu, 0, 2.1, lambda x: 0.001, TAYLOR),
    "gelu by tanh": Case(activations.gelu_tanh, gelu_tanh, 0, 18, lambda x: 0.0025),
    "silu": Case(activations.silu, lambda x: x * sigmoid(x), 0, 500, lambda x: 0.005 + 2 * ULP * abs(x)),
    "log": Case(functions.log, np.log, 0.001, 250, lambda x: 0.1, None, signed=False),
    "log near 1": Case(functions.log, np.log, 0.1, 16, lambda x: 0.02, None, signed=False),
    "square root": Case(
        elementary.square_root, np.sqrt, 0.1, 154, lambda x: 5.5e-3 * x**0.5 + ULP, None, signed=False
    ),
    "reciprocal": Case(
        elementary.signed_reciprocal, np.reciprocal, 0.02, 128,
        lambda x: ULP * (1.1 * x**2 + 4 * abs(x) + 30) / abs(x),
    ),
}  # fmt: skip


def run(case, x):
    steps = Public(case.steps)
    choices = () if case.v is None else (Public(case.v),)
    return run_protocol(case.function, x, steps, *choices).values


@pytest.mark.parametrize("name", CASES)
def test_function_is_within_its_error_everywhere(name):
    """4,000 points of the range, its ends and the smallest numbers included."""
    case = CASES[name]
    x = np.unique(
        np.r_[np.linspace(case.low, case.high, 2000), np.geomspace(case.low or ULP, case.high, 2000)]
    )
    x = np.round(np.r_[x, -x] if case.signed else x, 10)
    x = np.clip(np.round(x / ULP) * ULP, -case.high, case.high)
    x = x[abs(x) >= case.low]
    error = abs(run(case, x) - case.truth(x))
    assert (error <= case.error(x)).all(), (x[error > case.error(x)][:5], error.max())


@pytest.mark.parametrize("name", CASES)
@settings(derandomised, max_examples=6)
@given(st.data())
def test_function_of_any_shape_and_numbers(name, data):
    """Whatever the shape: a scalar row, several axes, and any numbers of the range."""
    case = CASES[name]
    size = st.integers(math.ceil(case.low / ULP), math.floor(case.high / ULP))
    draw = st.tuples(size, st.sampled_from((1, -1) if case.signed else (1,)))
    x = ULP * data.draw(
        hnp.arrays(
            np.int64, hnp.array_shapes(max_dims=3, max_side=4), elements=draw.map(lambda p: p[0] * p[1])
        )
    )
    got = run(case, x)
    assert got.shape == x.shape
    assert (abs(got - case.truth(x)) <= case.error(x)).all()


@derandomised
@given(st.integers(0, 2**32))
def test_private_division(seed):
    """y^2 / 2^16 of the quotient from the reciprocal, and a unit of it for every unit of the dividend."""
    rng = np.random.default_rng(seed)
    y = np.exp(rng.uniform(np.log(0.02), np.log(128), 50)) * rng.choice((-1, 1), 50)
    x = rng.uniform(-20, 20, 50)
    got = run_protocol(elementary.divide, x, y, Public(CRYPTEN), Public(CRYPTEN_WAY)).values
    bound = abs(x) * ULP * (1.1 * y**2 + 4 * abs(y) + 30) / abs(y) + ULP * (
        1 + 0.5 * abs(x / y**2) + 1 / abs(y)
    )
    assert (abs(got - x / y) <= bound).all()


def test_cosine_and_sine():
    """x^2/2^11 of the circle's radius, and 2^10 units of its angle."""
    x = np.linspace(-6, 6, 4001)
    cosine, sine = run_protocol(elementary.cos_sin, x, Public(CRYPTEN)).values
    bound = x**2 / 2**11 + 1024 * ULP
    assert (abs(cosine - np.cos(x)) <= bound).all()
    assert (abs(sine - np.sin(x)) <= bound).all()


@derandomised
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=9), st.integers(0, 2**32))
def test_polynomial(coefficients, seed):
    """Any degree: the powers it leaves out must be those nobody asked for."""
    x = np.random.default_rng(seed).uniform(-1, 1, (2, 5))
    got = run_protocol(functions.polynomial, x, Public(tuple(coefficients))).values
    truth = sum(c * x ** (k + 1) for k, c in enumerate(coefficients))
    assert abs(got - truth).max() <= ULP * (len(coefficients) + 2) * (1 + sum(map(abs, coefficients)))


@pytest.mark.parametrize("v", [CRYPTEN_WAY, LEAN], ids=["crypten", "lean"])
@derandomised
@given(hnp.arrays(np.int64, hnp.array_shapes(max_dims=2), elements=st.integers(-(2**40), 2**40)))
def test_sign_absolute_and_hardtanh_are_exact(v, raw):
    x = raw * ULP

    async def program(s, share):
        signs = await compare.sign(s, share, v)
        return signs << s.bits, await compare.absolute(s, share, v), await compare.hardtanh(s, share, v)

    signs, size, limited = run_protocol(program, x).values
    assert np.array_equal(signs, np.where(x < 0, -1, 1)), "the sign of 0 is 1"
    assert np.array_equal(size, abs(x))
    assert np.array_equal(limited, np.clip(x, -1, 1))


def test_hardtanh_with_other_limits():
    async def program(s, x):
        return await compare.hardtanh(s, x, low=0.0, high=6.0)

    x = np.linspace(-9, 9, 99)
    assert abs(run_protocol(program, x).values - np.clip(x, 0, 6)).max() <= ULP


# -- suites ----------------------------------------------------------------------------------------------

TRUTH = {
    "relu": lambda x: np.maximum(x, 0), "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": lambda x: x * sigmoid(x),
    "sigmoid": sigmoid, "tanh": np.tanh,
}  # fmt: skip


@pytest.mark.parametrize("function", ACTIVATIONS)
@pytest.mark.parametrize("suite", CRYPTENS.values(), ids=CRYPTENS)
def test_every_suite_has_every_activation(suite, function):
    """And each under its own op path: a path of another function's name would mix up their costs."""

    def program(s, x):
        return suite.activation(s, x, function)

    x = np.linspace(-12, 12, 601)
    run = run_protocol(program, x)
    assert abs(run.values - TRUTH[function](x)).max() < 0.008
    assert {run.names.text(message.path).split("/")[0] for message in run.online} == {function}


def test_unknown_activation_names_the_known_ones():
    def program(s, x):
        return SUITES["crypten"].activation(s, x, "swish")

    with pytest.raises(ExceptionGroup) as caught:
        run_protocol(program, np.zeros(2))
    (error,) = {str(e) for e in leaves(caught.value)}
    assert caught.group_contains(InputError)
    assert "'swish'" in error and "gelu_tanh" in error


def leaves(group):
    for e in group.exceptions:
        yield from leaves(e) if isinstance(e, ExceptionGroup) else (e,)


@pytest.mark.parametrize("suite", CRYPTENS.values(), ids=CRYPTENS)
@derandomised
@given(st.integers(1, 5), st.integers(1, 64), st.integers(-3, 3), st.integers(0, 2**32))
def test_rms_norm(suite, rows, width, exponent, seed):
    """Rows over the root of their mean square, whatever power of two their scale needs."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, width)) + rng.choice((-1, 1), (rows, 1))
    x *= 3 * 2.0**-exponent / np.sqrt((x**2).mean(1, keepdims=True))
    weight = rng.normal(1, 0.2, width)

    def program(s, shares, gamma):
        return suite.rms_norm(s, shares, gamma, exponent=exponent, epsilon=1e-5)

    truth = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * weight
    error = abs(run_protocol(program, x, weight).values - truth)
    assert (error <= 0.006 * abs(truth) + 0.003).all()


@pytest.mark.parametrize("length", [1, 2, 16, 17, 128, 300, 2048])
def test_log_softmax_of_short_and_long_rows(length):
    rng = np.random.default_rng(length)
    x = np.stack([np.full(length, -3.0), rng.normal(size=length), rng.normal(0, 5, length)])
    x[2, 0] = -400.0
    shifted = x - x.max(1, keepdims=True)
    truth = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    got = run_protocol(functions.log_softmax, x, Public(CRYPTEN), Public(LEAN)).values
    assert abs(got - truth).max() < 0.06
