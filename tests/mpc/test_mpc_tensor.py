"""The tensor seam: shapes must follow numpy's rules, or a shape run would send other bytes than an exact one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from mpc_cases import derandomised

from comet_sim.mpc.tensor import Blank, ExactOps, ShapeOps, ShapeTensor

EXACT, SHAPE = ExactOps(), ShapeOps()
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, max_side=5)


def real(shape):
    return np.zeros(shape, np.int64)


def both(function, *shapes):
    """Apply a function of ops and tensors in both modes; return the two shapes."""
    exact = function(EXACT, *(real(shape) for shape in shapes))
    shaped = function(SHAPE, *(ShapeTensor(shape) for shape in shapes))
    assert shaped.size == exact.size
    return exact.shape, shaped.shape


def agree(function, *shapes):
    exact, shaped = both(function, *shapes)
    assert exact == shaped


OPERATORS = {
    "+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y, "&": lambda x, y: x & y,
    "^": lambda x, y: x ^ y,
}  # fmt: skip


@derandomised
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=4, max_side=4))
def test_operators_broadcast(shapes):
    for operator in OPERATORS.values():
        agree(lambda ops, x, y, operator=operator: operator(x, y), *shapes.input_shapes)


@derandomised
@given(SHAPES)
def test_operators_with_numbers(shape):
    for change in (
        lambda x: -x,
        lambda x: ~x,
        lambda x: x << 3,
        lambda x: x >> 3,
        lambda x: 1 - x,
        lambda x: 2 * x + 1,
    ):
        agree(lambda ops, x, change=change: change(x), shape)


@derandomised
@given(SHAPES, st.data())
def test_basic_indexing(shape, data):
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    exact = real(shape)[index]
    if isinstance(exact, np.ndarray):
        assert ShapeTensor(shape)[index].shape == exact.shape


@derandomised
@given(SHAPES, st.data())
def test_indexing_by_public_arrays(shape, data):
    """Gathers of public rows ask numpy itself."""
    rows = data.draw(
        hnp.integer_array_indices((shape[0],), result_shape=hnp.array_shapes(max_dims=2, max_side=3))
    )
    agree(lambda ops, x: x[rows], shape)


@derandomised
@given(SHAPES, st.data())
def test_reductions_and_rearrangements(shape, data):
    axis = data.draw(st.integers(0, len(shape) - 1))
    other = data.draw(st.integers(-len(shape), len(shape) - 1))
    agree(lambda ops, x: ops.sum(x, axis), shape)
    agree(lambda ops, x: ops.cumsum(x, axis), shape)
    agree(lambda ops, x: ops.roll(x, 2, axis), shape)
    agree(lambda ops, x: ops.stack([x, x, x]), shape)
    agree(lambda ops, x: ops.concat([x, x], axis), shape)
    agree(lambda ops, x: x.swapaxes(axis, other), shape)
    agree(lambda ops, x: x.reshape((-1, shape[-1])), shape)
    agree(lambda ops, x: x.reshape((x.size,)), shape)
    agree(lambda ops, x: ops.truncate(x, 3, 0), shape)
    agree(lambda ops, x: ops.divide(x, 3, 1), shape)


@pytest.mark.parametrize(
    "shapes", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (4, 3, 1))]
)
def test_matrix_products(shapes):
    agree(lambda ops, x, y: ops.matmul(x, y), *shapes)


@derandomised
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, min_dims=1, max_dims=3, max_side=4))
def test_select_by_a_public_mask(shapes):
    keep = np.ones(shapes.input_shapes[1], bool)
    agree(lambda ops, x: ops.select(x, keep, 7), shapes.input_shapes[0])


@derandomised
@given(st.lists(SHAPES, min_size=1, max_size=4))
def test_buffers_are_as_long_in_both_modes(shapes):
    """And what was packed comes out again, in the order it went in."""
    parts = tuple(np.arange(np.prod(shape)).reshape(shape) * (i + 1) for i, shape in enumerate(shapes))
    blanks = tuple(ShapeTensor(shape) for shape in shapes)
    buffer, blank = EXACT.pack(parts), SHAPE.pack(blanks)
    assert len(buffer) == len(blank) == 8 * sum(part.size for part in parts)
    for part, back in zip(parts, EXACT.unpack(buffer, parts), strict=True):
        assert np.array_equal(part, back)
    assert SHAPE.unpack(blank, blanks) == blanks


def test_bytes_on_the_wire_are_little_endian_words():
    assert EXACT.pack((np.array([1, -2]),)) == bytes([1, *[0] * 7, 0xFE, *[0xFF] * 7])
    assert EXACT.pack((np.arange(4).reshape(2, 2).T,))[8] == 2, "rows first, whatever the memory order"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SHAPE.unpack(Blank(24), (ShapeTensor((2,)),)),
        lambda: EXACT.unpack(bytes(24), (real((2,)),)),
        lambda: EXACT.unpack(bytes(24), (real((4,)),)),
        lambda: ShapeTensor((2, 3)).reshape((4, 2)),
        lambda: ShapeTensor((2, 3)) + ShapeTensor((4,)),
        lambda: SHAPE.matmul(ShapeTensor((2, 3)), ShapeTensor((2, 3))),
        lambda: SHAPE.matmul(ShapeTensor((3,)), ShapeTensor((3, 3))),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(wrong):
    """In a shape run too: it would otherwise count bytes no exact run can send."""
    with pytest.raises(ValueError):
        wrong()


def test_out_of_range_indices_are_refused():
    for tensor in (ShapeTensor((2, 3)), real((2, 3))):
        with pytest.raises(IndexError):
            tensor[2]
