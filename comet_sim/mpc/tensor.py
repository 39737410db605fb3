"""The tensor seam: protocol code is written once, over values that are real ring arrays or only their shapes.

`ExactOps` works on numpy int64 arrays (ring Z_2^64); `ShapeOps` on `ShapeTensor`, which carries a shape and
nothing else. Both meet the same `Ops` interface, so one coroutine yields the same trace in either mode.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from comet_sim.mpc import ring

__all__ = [
    "WORD_BYTES",
    "Blank",
    "ExactOps",
    "Ops",
    "Shape",
    "ShapeOps",
    "ShapeTensor",
    "Tensor",
    "pack_bits",
    "packed_words",
    "unpack_bits",
]

WORD_BYTES = 8
"""Bytes of one ring element on the wire; the ring is Z_2^64."""

Shape = tuple[int, ...]
Ints = NDArray[np.int64]


def packed_words(bits: int) -> int:
    """Return how many ring words hold that many bits."""
    return -(-bits // 64)


def pack_bits(bits: NDArray[Any]) -> Ints:
    """Return bits (integers 0 or 1, any shape) as words, 64 to each, the first in the lowest place."""
    flat = np.packbits(bits.reshape(-1).astype(np.uint8), bitorder="little")
    padded = np.zeros(WORD_BYTES * packed_words(bits.size), np.uint8)
    padded[: flat.size] = flat
    return padded.view("<i8").astype(np.int64, copy=False)


def unpack_bits(words: NDArray[np.int64], shape: Shape) -> Ints:
    """Return the bits in words as integers 0 or 1 of the given shape."""
    raw = words.astype("<i8", copy=False).view(np.uint8)
    return np.unpackbits(raw, count=prod(shape), bitorder="little").astype(np.int64).reshape(shape)


class Tensor(Protocol):
    """What protocol code may do with a share or an opened value, whether it has numbers or not."""

    @property
    def shape(self) -> Shape:
        """Dimensions."""

    @property
    def size(self) -> int:
        """Number of elements."""

    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __invert__(self) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __xor__(self, other: Any, /) -> Any: ...
    def __lshift__(self, other: Any, /) -> Any: ...
    def __rshift__(self, other: Any, /) -> Any: ...
    def __getitem__(self, index: Any, /) -> Any: ...

    def reshape(self, shape: Shape, /) -> Any:
        """Return the same elements in another shape."""

    def swapaxes(self, first: int, second: int, /) -> Any:
        """Return the tensor with two axes exchanged."""


@lru_cache(maxsize=4096)
def _broadcast(x: Shape, y: Shape) -> Shape:
    return np.broadcast_shapes(x, y)


@lru_cache(maxsize=4096)
def _matmul_shape(x: Shape, y: Shape) -> Shape:
    if len(x) < 2 or len(y) < 2 or x[-1] != y[-2]:
        raise ValueError(f"matmul of shapes {x} and {y}")
    return (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])


class ShapeTensor:
    """A tensor without values: its shape follows the same rules as numpy's, and it is immutable."""

    __slots__ = ("shape", "size")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.size = prod(shape)

    def __repr__(self) -> str:
        return f"ShapeTensor{self.shape}"

    def _join(self, other: Any) -> ShapeTensor:
        shape = getattr(other, "shape", None)
        if shape is None or shape == self.shape:
            return self
        joined = _broadcast(self.shape, shape)
        if joined == self.shape:
            return self
        if joined == shape and type(other) is ShapeTensor:
            return other
        return ShapeTensor(joined)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __and__ = __xor__ = _join

    def __neg__(self) -> ShapeTensor:
        return self

    __invert__ = __neg__

    def __lshift__(self, bits: int) -> ShapeTensor:
        return self

    __rshift__ = __lshift__

    def __getitem__(self, index: Any) -> ShapeTensor:
        return ShapeTensor(_indexed(self.shape, index if isinstance(index, tuple) else (index,)))

    def reshape(self, shape: Shape) -> ShapeTensor:
        """Return the same elements in another shape; one dimension may be -1."""
        if -1 in shape:
            known = -prod(shape)
            shape = tuple(self.size // known if n == -1 else n for n in shape)
        if prod(shape) != self.size:
            raise ValueError(f"cannot reshape {self.shape} into {shape}")
        return ShapeTensor(shape)

    def swapaxes(self, first: int, second: int) -> ShapeTensor:
        """Return the tensor with two axes exchanged."""
        dims = list(self.shape)
        dims[first], dims[second] = dims[second], dims[first]
        return ShapeTensor(tuple(dims))


def _indexed(shape: Shape, index: tuple[Any, ...]) -> Shape:
    """Shape of basic indexing (integers, slices, one ellipsis, None); anything else asks numpy."""
    out: list[int] = []
    axis = 0
    for position, item in enumerate(index):
        if item is Ellipsis:
            kept = len(shape) - sum(1 for later in index[position + 1 :] if later is not None)
            out.extend(shape[axis:kept])
            axis = kept
        elif item is None:
            out.append(1)
        elif isinstance(item, slice):
            out.append(len(range(*item.indices(shape[axis]))))
            axis += 1
        elif isinstance(item, int):
            if not -shape[axis] <= item < shape[axis]:
                raise IndexError(f"index {item} is out of bounds for axis {axis} of {shape}")
            axis += 1
        else:
            return tuple(np.broadcast_to(np.int8(0), shape)[index].shape)
    out.extend(shape[axis:])
    return tuple(out)


class Blank:
    """A buffer of a known length and no content: what a shape-only run sends."""

    __slots__ = ("length",)

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length


class Ops(Protocol):
    """Functions on tensors that are not operators, and the codec between tensors and wire buffers."""

    exact: bool

    def public(self, values: NDArray[Any]) -> Any:
        """Return a public integer array as a tensor of this mode."""

    def zeros(self, shape: Shape) -> Any:
        """Return zeros."""

    def concat(self, parts: list[Any], axis: int) -> Any:
        """Join along an existing axis."""

    def stack(self, parts: list[Any]) -> Any:
        """Join along a new first axis."""

    def matmul(self, x: Any, y: Any) -> Any:
        """Return the ring product, with numpy's batch rules."""

    def sum(self, x: Any, axis: int) -> Any:
        """Sum along an axis, which stays with length 1."""

    def cumsum(self, x: Any, axis: int) -> Any:
        """Running sum along an axis."""

    def roll(self, x: Any, shift: int, axis: int) -> Any:
        """Rotate along an axis."""

    def select(self, x: Any, keep: NDArray[np.bool_], fill: int) -> Any:
        """Return `x` where the public mask `keep` holds and `fill` elsewhere."""

    def truncate(self, x: Any, bits: int, party: int) -> Any:
        """Divide a share by 2^bits locally (two-party truncation, error one unit in the last place)."""

    def divide(self, x: Any, divisor: int, party: int) -> Any:
        """Divide a share by a public positive integer locally, rounding as truncation does."""

    def pack(self, parts: tuple[Any, ...]) -> Any:
        """Return the buffer that carries the tensors, 8 bytes an element."""

    def unpack(self, buffer: Any, like: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the tensors in a buffer, shaped like `like`."""

    def split(self, words: Any, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        """Cut a flat tensor into consecutive tensors of the given shapes."""

    def take(self, x: Any, order: NDArray[np.integer] | None, axis: int) -> Any:
        """Return `x` in another order along an axis; shapes need no order."""

    def entries(self, x: Any, mask: NDArray[np.bool_]) -> Any:
        """Return the entries (and all later axes) where a public mask over the first axes holds: (count, ...)."""

    def spread(self, values: Any, mask: NDArray[np.bool_]) -> Any:
        """Return a tensor with `values` where the mask holds, in order, and zeros elsewhere."""

    def pack_bits(self, bits: Any) -> Any:
        """Return bits as words, 64 to each."""

    def unpack_bits(self, words: Any, shape: Shape) -> Any:
        """Return the bits in words, as integers 0 or 1."""


class ExactOps:
    """Real ring arithmetic on numpy int64 arrays."""

    exact = True

    def public(self, values: NDArray[Any]) -> Ints:
        """Return the array as ring elements."""
        return values.astype(np.int64)

    def zeros(self, shape: Shape) -> Ints:
        """Return zeros."""
        return np.zeros(shape, np.int64)

    def concat(self, parts: list[Any], axis: int) -> Ints:
        """Join along an existing axis."""
        return np.concatenate(parts, axis)

    def stack(self, parts: list[Any]) -> Ints:
        """Join along a new first axis."""
        return np.stack(parts)

    def matmul(self, x: Any, y: Any) -> Ints:
        """Return the exact product modulo 2^64."""
        return ring.matmul(x, y)

    def sum(self, x: Any, axis: int) -> Ints:
        """Sum along an axis, which stays with length 1."""
        return cast(Ints, x.sum(axis, keepdims=True))

    def cumsum(self, x: Any, axis: int) -> Ints:
        """Running sum along an axis."""
        return cast(Ints, x.cumsum(axis))

    def roll(self, x: Any, shift: int, axis: int) -> Ints:
        """Rotate along an axis."""
        return np.roll(x, shift, axis)

    def select(self, x: Any, keep: NDArray[np.bool_], fill: int) -> Ints:
        """Return `x` where the public mask `keep` holds and `fill` elsewhere."""
        return np.where(keep, x, np.int64(fill))

    def truncate(self, x: Any, bits: int, party: int) -> Ints:
        """Divide a share by 2^bits locally (two-party truncation, error one unit in the last place)."""
        return ring.truncate(x, bits, party)

    def divide(self, x: Any, divisor: int, party: int) -> Ints:
        """Divide a share by a public positive integer locally, rounding as truncation does."""
        return cast(Ints, x // divisor if party == 0 else -(-x // divisor))

    def pack(self, parts: tuple[Any, ...]) -> bytes:
        """Return the tensors as consecutive little-endian 64-bit words."""
        if len(parts) == 1:
            return cast(bytes, parts[0].astype("<i8", copy=False).tobytes())
        return b"".join(part.astype("<i8", copy=False).tobytes() for part in parts)

    def unpack(self, buffer: Any, like: tuple[Any, ...]) -> tuple[Ints, ...]:
        """Return read-only views of the tensors in a buffer."""
        words = np.frombuffer(buffer, "<i8")
        return self.split(words, tuple(part.shape for part in like))

    def split(self, words: Any, shapes: tuple[Shape, ...]) -> tuple[Ints, ...]:
        """Cut a flat tensor into consecutive tensors of the given shapes."""
        out = []
        start = 0
        for shape in shapes:
            stop = start + prod(shape)
            out.append(words[start:stop].reshape(shape))
            start = stop
        if start != words.size:
            raise ValueError(f"a buffer of {words.size} words was read as {start}")
        return tuple(out)

    def take(self, x: Any, order: NDArray[np.integer] | None, axis: int) -> Ints:
        """Return `x` in another order along an axis."""
        assert order is not None
        return np.take(x, order, axis)

    def entries(self, x: Any, mask: NDArray[np.bool_]) -> Ints:
        """Return the entries where the mask holds."""
        return cast(Ints, x[mask])

    def spread(self, values: Any, mask: NDArray[np.bool_]) -> Ints:
        """Return a tensor with `values` where the mask holds and zeros elsewhere."""
        out = np.zeros((*mask.shape, *values.shape[1:]), np.int64)
        out[mask] = values
        return out

    def pack_bits(self, bits: Any) -> Ints:
        """Return bits as words, 64 to each."""
        return pack_bits(bits)

    def unpack_bits(self, words: Any, shape: Shape) -> Ints:
        """Return the bits in words."""
        return unpack_bits(words, shape)


class ShapeOps:
    """The same functions over shapes."""

    exact = False

    def public(self, values: NDArray[Any]) -> ShapeTensor:
        """Return the array's shape as a tensor."""
        return ShapeTensor(values.shape)

    def zeros(self, shape: Shape) -> ShapeTensor:
        """Return a tensor of the shape."""
        return ShapeTensor(shape)

    def concat(self, parts: list[Any], axis: int) -> ShapeTensor:
        """Join along an existing axis."""
        dims = list(parts[0].shape)
        dims[axis] = sum(part.shape[axis] for part in parts)
        return ShapeTensor(tuple(dims))

    def stack(self, parts: list[Any]) -> ShapeTensor:
        """Join along a new first axis."""
        return ShapeTensor((len(parts), *parts[0].shape))

    def matmul(self, x: Any, y: Any) -> ShapeTensor:
        """Return the shape of the product."""
        return ShapeTensor(_matmul_shape(x.shape, y.shape))

    def sum(self, x: Any, axis: int) -> ShapeTensor:
        """Sum along an axis, which stays with length 1."""
        dims = list(x.shape)
        dims[axis] = 1
        return ShapeTensor(tuple(dims))

    def cumsum(self, x: Any, axis: int) -> ShapeTensor:
        """Keep the shape."""
        return cast(ShapeTensor, x)

    def roll(self, x: Any, shift: int, axis: int) -> ShapeTensor:
        """Keep the shape."""
        return cast(ShapeTensor, x)

    def select(self, x: Any, keep: NDArray[np.bool_], fill: int) -> ShapeTensor:
        """Return the broadcast of tensor and mask."""
        shape = _broadcast(x.shape, keep.shape)
        return cast(ShapeTensor, x) if shape == x.shape else ShapeTensor(shape)

    def truncate(self, x: Any, bits: int, party: int) -> ShapeTensor:
        """Keep the shape."""
        return cast(ShapeTensor, x)

    def divide(self, x: Any, divisor: int, party: int) -> ShapeTensor:
        """Keep the shape."""
        return cast(ShapeTensor, x)

    def pack(self, parts: tuple[Any, ...]) -> Blank:
        """Return a blank buffer of the length the tensors would take."""
        if len(parts) == 1:
            return Blank(WORD_BYTES * parts[0].size)
        return Blank(WORD_BYTES * sum(part.size for part in parts))

    def unpack(self, buffer: Any, like: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the tensors themselves, after the length was compared."""
        if WORD_BYTES * sum(part.size for part in like) != len(buffer):
            raise ValueError(f"a buffer of {len(buffer)} bytes does not hold {like}")
        return like

    def split(self, words: Any, shapes: tuple[Shape, ...]) -> tuple[ShapeTensor, ...]:
        """Return tensors of the given shapes."""
        return tuple(ShapeTensor(shape) for shape in shapes)

    def take(self, x: Any, order: NDArray[np.integer] | None, axis: int) -> ShapeTensor:
        """Return the shape in another order, which may pick fewer or more."""
        if order is None:
            return cast(ShapeTensor, x)
        return ShapeTensor((*x.shape[:axis], len(order), *x.shape[axis + 1 :]))

    def entries(self, x: Any, mask: NDArray[np.bool_]) -> ShapeTensor:
        """Return the shape of the entries where the mask holds."""
        return ShapeTensor((int(np.count_nonzero(mask)), *x.shape[mask.ndim :]))

    def spread(self, values: Any, mask: NDArray[np.bool_]) -> ShapeTensor:
        """Return the shape of the mask and the values' later axes."""
        return ShapeTensor((*mask.shape, *values.shape[1:]))

    def pack_bits(self, bits: Any) -> ShapeTensor:
        """Return the shape of the words."""
        return ShapeTensor((packed_words(bits.size),))

    def unpack_bits(self, words: Any, shape: Shape) -> ShapeTensor:
        """Return a tensor of the shape."""
        return ShapeTensor(shape)
