"""Ring products must be right to the last bit however they are computed; fixed point must round as said."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.mpc import ring

LOW, HIGH = -(2**63), 2**63 - 1
WORST_LIMBS = -(2**21) - 2**43  # both lower limbs at -2^21: the largest product terms there are


def uniform(seed, *shape):
    return np.random.default_rng(seed).integers(LOW, HIGH, shape, dtype=np.int64, endpoint=True)


def python_product(x, y):
    """Exact product with Python integers, reduced to signed 64 bits."""
    exact = x.astype(object) @ y.astype(object)
    return np.array([[(int(v) - LOW) % 2**64 + LOW for v in row] for row in exact], dtype=np.int64)


def test_numpy_wraps_as_the_reference_assumes():
    x, y = uniform(1, 5, 7), uniform(2, 7, 6)
    assert np.array_equal(x @ y, python_product(x, y))
    assert np.array_equal(ring.matmul(x, y), python_product(x, y))


# One shape at least for each way of computing, both sides of every switch, chunk edges of k.
SHAPES = [
    (1, 1, 1), (1, 64, 64), (1, 64, 65), (1, 300, 200), (16, 64, 64), (17, 64, 64), (3, 700, 15),
    (3, 700, 16), (40, 1, 40), (200, 1, 200), (64, 64, 64), (64, 1023, 40), (64, 1024, 40),
    (64, 1025, 40), (50, 2100, 33), (128, 64, 700), (1000, 64, 4),
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fill", [None, LOW, HIGH, -1, WORST_LIMBS])
def test_product_is_exact(shape, fill):
    m, k, n = shape
    x, y = (
        (uniform(1, m, k), uniform(2, k, n))
        if fill is None
        else (np.full((m, k), fill), np.full((k, n), fill))
    )
    expected = x @ y if fill is None else np.full((m, n), ((fill * fill * k) - LOW) % 2**64 + LOW)
    for got in (ring.matmul(x, y), ring._limb_matmul(x, y)):
        assert got.dtype == np.int64
        assert got.flags.c_contiguous
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("k", [1024, 2040])
def test_sums_at_the_float_limit(k):
    """The middle sum is odd and as large as it gets: chunks of 2048 would pass 2^53 and round it."""
    x = np.full((64, k), WORST_LIMBS)
    y = x.T.copy()
    x[:, 0] += 1
    y[0] += 2**22
    assert np.array_equal(ring._limb_matmul(x, y), x @ y)


def test_tiles_of_rows_and_columns(monkeypatch):
    """Tiles that do not divide the shape must neither overlap nor leave gaps."""
    monkeypatch.setattr(ring, "_ROWS", 30)
    monkeypatch.setattr(ring, "_TILE", 64)
    monkeypatch.setattr(ring, "_DEPTH", 50)
    monkeypatch.setattr(ring, "_CACHED", 100)
    x, y = uniform(1, 101, 120), uniform(2, 120, 200)
    expected = x @ y
    assert np.array_equal(ring._limb_matmul(x, y), expected)
    assert np.array_equal(ring._limb_matmul(x, np.asfortranarray(y)), expected)
    assert np.array_equal(ring._limb_matmul(np.asfortranarray(x), y), expected)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(*[st.integers(1, 70)] * 3),
    st.sampled_from([((), ()), ((2,), ()), ((), (3,)), ((2, 1), (3,)), ((1,), (2,)), ((0,), (1,))]),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.integers(0, 2**32),
)
def test_layouts_and_batches(shape, batches, flags, seed):
    """Transposed, reversed, strided and broadcast operands, through the switch and through limbs."""
    m, k, n = shape
    x, y = uniform(seed, *batches[0], m, k), uniform(seed + 1, *batches[1], k, n)
    if flags[0]:
        x = x.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if flags[1]:
        y = y.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if flags[2]:
        x, y = x[..., ::-1], y[..., ::-1, :]
    if flags[3]:
        y = np.repeat(y, 2, -1)[..., ::2]
    expected = np.matmul(x, y)
    got = ring.matmul(x, y)
    assert np.array_equal(got, expected)
    assert got.flags.c_contiguous
    if expected.size:
        assert np.array_equal(ring._limb_matmul(x, y), expected)


def test_result_is_contiguous_whatever_the_operands_are():
    """einsum returns columns first for such operands; messages are made from the buffer as it lies."""
    x, y = np.asfortranarray(uniform(1, 20, 100)), np.asfortranarray(uniform(2, 100, 50))
    got = ring.matmul(x, y)
    assert got.flags.c_contiguous
    assert np.array_equal(got, x @ y)


def test_broadcast_views():
    """Operands with stride 0, as broadcast_to makes them, large enough for limbs."""
    x = np.broadcast_to(uniform(1, 1, 80), (3, 100, 80))
    y = np.broadcast_to(uniform(2, 80, 1), (3, 80, 90))
    assert np.array_equal(ring.matmul(x, y), np.matmul(x, y))
    assert np.array_equal(ring._limb_matmul(x, y), np.matmul(x, y))


def test_operands_are_left_alone():
    x, y = uniform(1, 64, 64), uniform(2, 64, 64)
    before = x.copy(), y.copy()
    x.flags.writeable = y.flags.writeable = False
    ring._limb_matmul(x, y)
    assert np.array_equal(x, before[0])
    assert np.array_equal(y, before[1])


@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 5), (5, 3)), ((4, 0), (0, 3)), ((4, 5), (5, 0)), ((2, 4, 0), (0, 3)), ((0, 4, 5), (5, 3)),
     ((0, 4, 5), (1, 5, 3)), ((2000, 0), (0, 2000)), ((0, 2000), (2000, 2000))],
)  # fmt: skip
def test_empty_dimensions(left, right):
    x, y = np.ones(left, np.int64), np.ones(right, np.int64)
    got = ring.matmul(x, y)
    assert got.dtype == np.int64
    assert np.array_equal(got, np.matmul(x, y))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.ones((2, 3)), np.ones((3, 2), np.int64)),
        (np.ones((2, 3), np.int32), np.ones((3, 2), np.int64)),
        (np.ones(3, np.int64), np.ones((3, 2), np.int64)),
        (np.ones((2, 3), np.int64), np.ones((2, 3), np.int64)),
        (np.ones((2, 1), np.int64), np.ones((3, 2), np.int64)),
        (np.ones((2, 2, 3), np.int64), np.ones((4, 3, 2), np.int64)),
    ],
)
def test_operands_that_cannot_be_multiplied(x, y):
    with pytest.raises(InputError, match="ring product"):
        ring.matmul(x, y)


@given(st.floats(-(2.0**46), 2.0**46), st.integers(0, 16))
def test_encoding_rounds_half_to_even(value, f):
    assert ring.encode(value, f) == round(Fraction(value) * 2**f)


def test_encoding_keeps_shape_and_ties():
    coded = ring.encode([[0.5, 1.5], [-0.5, -2.5]], 0)
    assert coded.dtype == np.int64
    assert coded.tolist() == [[0, 2], [0, -2]]
    assert ring.encode(-(2.0**47)) == LOW
    assert ring.encode(np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**47, -(2.0**47) - 1, 1e308])
def test_encoding_out_of_range(value):
    """numpy turns these into the smallest int64 without an error."""
    with pytest.raises(InputError, match="16 fractional bits"):
        ring.encode([0.0, value])


@given(st.integers(-(2**53), 2**53), st.integers(0, 40))
def test_decoding_undoes_encoding(element, f):
    x = np.array([element])
    assert ring.decode(x, f).dtype == np.float64
    assert np.array_equal(ring.encode(ring.decode(x, f), f), x)


@given(st.integers(-(2**40), 2**40), st.integers(LOW, HIGH), st.integers(1, 20))
@example(-1, HIGH, 16)
@example(5, 5 + LOW, 16)  # share 1 is -2^63, whose negative is itself: broken truncation that went uncounted
@example(-5, HIGH - 4, 16)
def test_truncation_is_off_by_at_most_one_unless_wrapped(secret, mask, f):
    x = np.array([secret])
    x0 = np.array([mask])
    x1 = x - x0
    opened = int((ring.truncate(x0, f, 0) + ring.truncate(x1, f, 1))[0])
    if ring.wrapped(x0, x1) == 0:
        assert abs(opened - Fraction(secret, 2**f)) <= 1
    else:
        assert abs(abs(opened - Fraction(secret, 2**f)) - 2 ** (64 - f)) <= 1


@given(st.integers(LOW, HIGH), st.integers(LOW + 1, HIGH))
def test_wraps_are_counted(a, b):
    assert ring.wrapped(np.array([a]), np.array([b])) == int(not LOW <= a + b <= HIGH)


def test_wraps_are_counted_over_all_elements():
    assert ring.wrapped(np.array([[HIGH, 1], [LOW, LOW]]), np.array([[1, 1], [-1, 0]])) == 2
    assert ring.wrapped(np.array([-1, 0]), np.array([LOW, LOW])) == 1


def test_truncation_by_a_third_party():
    with pytest.raises(InputError, match="party 2"):
        ring.truncate(np.zeros(1, np.int64), 16, 2)
