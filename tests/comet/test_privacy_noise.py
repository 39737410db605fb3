"""The noise on counts: what is drawn is what is stated, and it is as private as it says, to the last bit."""

from __future__ import annotations

from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from comet_sim.comet.noise import Mechanism, mechanism
from comet_sim.comet.settings import DELTAS, EPSILONS, Noise
from comet_sim.errors import InputError
from comet_sim.mpc.prg import Prg

WHOLE = 1 << 64


def divergence(found: Mechanism, epsilon: Fraction, change: int) -> Fraction:
    """The delta at which counts that differ by `change` look alike: an event-by-event sum, in fractions."""
    with localcontext() as context:
        context.prec = 60
        factor = Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp())
    first = {k: Fraction(weight, WHOLE) for k, weight in enumerate(found.weights)}
    second = {k + change: share for k, share in first.items()}
    return sum(
        (
            max(Fraction(0), share - factor * second.get(outcome, Fraction(0)))
            for outcome, share in first.items()
        ),
        Fraction(0),
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "shift"), [(0.01, 1e-6, 852), (0.1, 1e-6, 109), (1.0, 1e-6, 14), (0.01, 1e-12, 2234)]
)
def test_the_shift(epsilon: float, delta: float, shift: int) -> None:
    assert mechanism(Noise(epsilon, delta)).shift == shift


@settings(max_examples=40, deadline=None)
@given(st.floats(0.02, 10), st.floats(1e-12, 0.5))
def test_delta_is_at_most_the_stated_one_both_ways(epsilon: float, delta: float) -> None:
    found = mechanism(Noise(epsilon, delta))
    exact = [divergence(found, Fraction(epsilon), change) for change in (1, -1)]
    for each in exact:
        assert each <= found.achieved + Fraction(1, 10**30)
        assert each <= Fraction(delta)
    assert abs(max(exact) - found.achieved) < Fraction(1, 10**30)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.02, 10), st.floats(1e-12, 0.5))
def test_no_smaller_shift_would_do(epsilon: float, delta: float) -> None:
    shift = mechanism(Noise(epsilon, delta)).shift
    assert shift >= 1
    step = np.exp(-epsilon)
    smaller = shift - 1
    # P(0) of the mechanism with the shift before: what its lower end alone gives away.
    end = step**smaller / (1 + 2 * sum(step**k for k in range(1, smaller + 1)))
    assert end > delta * (1 - 1e-6)


def test_weights_are_those_of_the_discrete_laplace_distribution() -> None:
    found = mechanism(Noise(0.25, 1e-5))
    assert sum(found.weights) == WHOLE
    assert found.weights == found.weights[::-1]
    k = np.arange(found.largest + 1)
    ideal = np.exp(-0.25 * abs(k - found.shift))
    np.testing.assert_allclose(np.array(found.weights, float) / WHOLE, ideal / ideal.sum(), rtol=1e-12)


def test_every_word_falls_where_the_weights_say() -> None:
    """The first and the last word of each noise's share of all words, and so every word between."""
    found = mechanism(Noise(0.5, 1e-3))
    ends = np.cumsum(np.array(found.weights, object))
    starts = [0, *ends[:-1]]
    first = np.array(starts, np.uint64).view(np.int64)
    last = np.array([end - 1 for end in ends], np.uint64).view(np.int64)
    every = np.arange(found.largest + 1)
    np.testing.assert_array_equal(found.draw(first), every)
    np.testing.assert_array_equal(found.draw(last), every)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 3.0])
def test_draws_follow_the_weights(epsilon: float) -> None:
    found = mechanism(Noise(epsilon, 1e-3))
    draws = found.draw(Prg(bytes(16)).words(b"draws", 200_000))
    counts = np.bincount(draws, minlength=found.largest + 1)
    expected = np.array(found.weights, float) / WHOLE * draws.size
    assert expected.min() > 5, "cells too small for the test"
    assert chisquare(counts, expected).pvalue > 0.001


def test_the_machine_s_decimal_context_does_not_matter() -> None:
    before = mechanism(Noise(0.03, 1e-7)).weights
    mechanism.cache_clear()
    getcontext().prec, kept = 5, getcontext().prec
    try:
        assert mechanism(Noise(0.03, 1e-7)).weights == before
    finally:
        getcontext().prec = kept


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"),
    [
        (0.0, 1e-6, "epsilon"),
        (25.0, 1e-6, "epsilon"),
        (float("nan"), 1e-6, "epsilon"),
        (1.0, 0.0, "delta"),
        (1.0, 0.6, "delta"),
    ],
)
def test_bad_figures_are_named(epsilon: float, delta: float, named: str) -> None:
    with pytest.raises(InputError, match=f"^{named} of the noise on counts: read"):
        Noise(epsilon, delta)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_ends_of_what_is_accepted(epsilon: float, delta: float) -> None:
    found = mechanism(Noise(epsilon, delta))
    assert found.achieved <= Fraction(delta)
    assert min(found.weights) > 0
