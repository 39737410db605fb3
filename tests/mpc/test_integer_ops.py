"""Operations on ring elements and bits must be right to the last bit, whatever the operands."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpc_cases import EDGES, derandomised, ring_arrays, uniform, words

from comet_sim.mpc import beaver, compare, maximum
from comet_sim.mpc.settings import Variants
from comet_sim.testing import Bits, Integers, Public, run_protocol

PAIRS = hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=3, max_side=4)


@derandomised
@given(PAIRS, st.data())
def test_multiply_broadcasts_as_numpy_does(shapes, data):
    x, y = (data.draw(ring_arrays(shape)) for shape in shapes.input_shapes)
    assert np.array_equal(run_protocol(beaver.multiply, Integers(x), Integers(y)).raw, x * y)


@derandomised
@given(ring_arrays(hnp.array_shapes(max_dims=3, max_side=5)))
def test_square(x):
    assert np.array_equal(run_protocol(beaver.square, Integers(x)).raw, x * x)


@derandomised
@given(
    st.tuples(*[st.integers(1, 6)] * 3),
    st.sampled_from([((), ()), ((2,), (2,)), ((3, 1), (2,)), ((2,), ())]),
    st.data(),
)
def test_matmul_follows_numpys_batch_rules(dims, batches, data):
    m, k, n = dims
    x = data.draw(ring_arrays((*batches[0], m, k)))
    y = data.draw(ring_arrays((*batches[1], k, n)))
    assert np.array_equal(run_protocol(beaver.matmul, Integers(x), Integers(y)).raw, x @ y)


def test_matmul_of_a_size_that_goes_by_limbs():
    """Servers and dealer multiply in floats from here on; the result is still exact."""
    x, y = uniform(1, 40, 300), uniform(2, 300, 70)
    assert np.array_equal(run_protocol(beaver.matmul, Integers(x), Integers(y)).raw, x @ y)


@derandomised
@given(ring_arrays(5), ring_arrays(5))
def test_bit_and(x, y):
    assert np.array_equal(run_protocol(beaver.bit_and, Bits(x), Bits(y)).xor, x & y)


@derandomised
@given(ring_arrays((2, 7)), st.integers(0, 2**32))
def test_a2b_is_the_same_word(x, seed):
    """Every carry chain: the adder adds two shares that are new with each seed."""
    assert np.array_equal(run_protocol(compare.arithmetic_to_bits, Integers(x), seed=seed).xor, x)


def test_a2b_of_many_words():
    x = uniform(5, 4000)
    assert np.array_equal(run_protocol(compare.arithmetic_to_bits, Integers(x)).xor, x)


@derandomised
@given(ring_arrays((3, 4), st.integers(0, 1)))
def test_b2a_gives_the_bit(bits):
    assert np.array_equal(run_protocol(beaver.bits_to_arithmetic, Bits(bits)).raw, bits)


@derandomised
@given(ring_arrays(9), st.integers(0, 2**32))
def test_less_than_zero_over_the_whole_ring(x, seed):
    x = np.concatenate([x, np.array(EDGES)])
    assert np.array_equal(run_protocol(compare.less_than_zero, Integers(x), seed=seed).raw, x < 0)


@derandomised
@given(ring_arrays(8), st.lists(st.booleans(), min_size=8, max_size=8), st.integers(0, 63))
def test_equal_also_when_one_bit_differs(x, same, bit):
    y = np.where(same, x, x ^ np.int64(np.uint64(1 << bit).astype(np.int64)))
    assert np.array_equal(run_protocol(compare.equal, Integers(x), Integers(y)).raw, np.array(same))


@derandomised
@given(ring_arrays((2, 6)))
def test_relu(x):
    assert np.array_equal(run_protocol(compare.relu, Integers(x)).raw, np.maximum(x, 0))


@derandomised
@given(ring_arrays(6, st.integers(0, 1)), ring_arrays(6), ring_arrays(6))
def test_where(condition, x, y):
    run = run_protocol(compare.where, Integers(condition), Integers(x), Integers(y))
    assert np.array_equal(run.raw, np.where(condition, x, y))


# Differences of entries must not wrap, as in CrypTen: entries stay within 62 bits.
ENTRIES = st.one_of(st.integers(-3, 3), st.integers(-(2**62) + 1, 2**62 - 1), st.just(-(1 << 36)))


@derandomised
@given(st.integers(1, 3), st.integers(1, 40), st.data())
def test_maximum_with_ties_and_negative_rows(rows, length, data):
    x = data.draw(ring_arrays((rows, length), ENTRIES))
    run = run_protocol(maximum.maximum, Integers(x))
    assert np.array_equal(run.raw, x.max(1, keepdims=True))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 20, 21, 54, 55, 148, 149, 300])
def test_maximum_at_every_number_of_halvings(length):
    """Both sides of every power of e, where another halving begins; odd lengths carry one entry over."""
    rng = np.random.default_rng(length)
    x = np.stack(
        [
            np.full(length, -7),
            rng.integers(-5, 5, length),
            -rng.integers(1, 2**40, length),
            np.roll(np.r_[9, np.zeros(length - 1, np.int64)], -1),
        ]
    )
    assert np.array_equal(run_protocol(maximum.maximum, Integers(x)).raw, x.max(1, keepdims=True))


def test_pairwise_maximum_with_many_rivals():
    """From 128 rivals on a comparison replaces the product tree."""
    x = np.random.default_rng(0).integers(-4, 5, (2, 140))
    run = run_protocol(maximum.maximum, Integers(x), Public(Variants(max="pairwise")))
    assert np.array_equal(run.raw, x.max(1, keepdims=True))


@derandomised
@given(ring_arrays((3, 9), st.integers(0, 1)), st.integers(0, 2**32))
def test_one_of_the_tied_is_picked(ties, seed):
    """Exactly one of the marked entries of each row is left."""
    ties[:, 4] = 1
    chosen = run_protocol(maximum.pick_one, Integers(ties), seed=seed).raw
    assert np.isin(chosen, (0, 1)).all()
    assert (chosen.sum(1) == 1).all()
    assert (chosen <= ties).all()


def test_every_tied_entry_is_picked_in_its_turn():
    """The tie-break is uniform (1,200 rows of four ties: each about 300 times, 5 standard deviations)."""
    chosen = run_protocol(maximum.pick_one, Integers(np.ones((1200, 4)))).raw
    assert (abs(chosen.sum(0) - 300) < 75).all()


def test_random_fraction_is_uniform_and_known_to_no_server():
    run = run_protocol(maximum.random_fraction, Public((4000,)))
    values = run.raw
    assert values.min() >= 0 and values.max() < 1 << 16
    assert abs(values.mean() / (1 << 16) - 0.5) < 5 * (1 / 12 / 4000) ** 0.5
    for share in run.outputs:
        assert abs(np.corrcoef(share.astype(float), values)[0, 1]) < 0.08


@derandomised
@given(ring_arrays(5), words)
def test_public_constants_and_openings(x, constant):
    async def program(s, share):
        return (await s.open(s.add_public(share, constant)))[0]

    with np.errstate(over="ignore"):
        expected = x + np.int64(constant)
    run = run_protocol(program, Integers(x))
    assert all(np.array_equal(opened, expected) for opened in run.outputs)
