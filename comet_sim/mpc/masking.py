"""Masks that are reused: a tensor version has one fixed mask and is opened once, rows as they come.

With per-use masking (the default) each multiplication masks and sends its operands again, weights included.
A `Masked` operand is opened under one mask B for good: later products send only the other operand. That is
safe while the mask belongs to one *version* of the tensor: whoever shuffles, refills or truncates it makes a
new version, whose mask is independent (two openings of related tensors under related masks would tell the
relation). Source: extension of this project; the paper masks per use.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.correlated import MaskRef
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES, Shape, ShapeTensor

__all__ = ["Masked", "MaskedView"]


class Masked:
    """A shared tensor under a fixed mask; rows may be appended along `axis`.

    `name` and `version` must be unique in the program and the same at both servers and the dealer; RuntimeError
    for a second tensor under them, whose opening would tell how the two are related.
    """

    __slots__ = ("_mask", "_opened", "_share", "axis", "name", "version")

    swapped = False

    def __init__(self, s: Session, name: str, share: Any, *, axis: int = 0, version: int = 0) -> None:
        if (name, version) in s.masks:
            raise RuntimeError(
                f"the mask of tensor {name!r}, version {version}, already hides another tensor"
            )
        s.masks.add((name, version))
        self.name = name
        self.axis = axis
        self.version = version
        self._share: Any = None
        self._mask: Any = None
        self._opened: Any = None
        self.append(s, share)

    def append(self, s: Session, share: Any) -> None:
        """Add rows along the axis; they are opened with the next product."""
        before = 0 if self._share is None else self._share.shape[self.axis]
        self._share = share if self._share is None else s.ops.concat([self._share, share], self.axis)
        s.charge(0, WORD_BYTES * share.size)
        mask: Any = ShapeTensor(share.shape)
        if s.ops.exact:
            assert s.seed is not None, "seeds are shared in the set-up phase"
            mask = self.ref().words(s.seed, before)
        self._mask = mask if self._mask is None else s.ops.concat([self._mask, mask], self.axis)

    @property
    def base(self) -> Masked:
        """The tensor itself."""
        return self

    @property
    def shape(self) -> Shape:
        """Shape of the tensor."""
        shape: Shape = self._share.shape
        return shape

    def swapaxes(self, first: int, second: int) -> MaskedView:
        """Return the tensor with its last two axes exchanged, under the same mask."""
        axes = len(self.shape)
        if {first % axes, second % axes} != {axes - 1, axes - 2}:
            raise ValueError(
                f"only the last two axes of a masked tensor can be exchanged, not {first}, {second}"
            )
        return MaskedView(self)

    def ref(self, *, swapped: bool = False) -> MaskRef:
        """Return the name of the mask as it stands."""
        shape, axis = self.shape, self.axis
        return MaskRef(
            self.name, self.version, axis, shape[axis], (*shape[:axis], *shape[axis + 1 :]), swapped
        )

    def pending(self) -> Any:
        """Return share minus mask of the rows that have not been opened, or None."""
        start = 0 if self._opened is None else self._opened.shape[self.axis]
        if start == self.shape[self.axis]:
            return None
        rows = (*(slice(None),) * self.axis, slice(start, None))
        return self._share[rows] - self._mask[rows]

    def admit(self, s: Session, opened: Any) -> None:
        """Take the opened values of the pending rows."""
        self._opened = opened if self._opened is None else s.ops.concat([self._opened, opened], self.axis)

    def operand(self, *, swapped: bool) -> tuple[Any, Any]:
        """Return this server's share of the mask, and the public difference of tensor and mask."""
        if swapped:
            return self._mask.swapaxes(-1, -2), self._opened.swapaxes(-1, -2)
        return self._mask, self._opened


class MaskedView:
    """A masked tensor with its last two axes exchanged."""

    __slots__ = ("base",)

    swapped = True

    def __init__(self, base: Masked) -> None:
        self.base = base

    @property
    def shape(self) -> Shape:
        """Shape as it is used."""
        return self.base.ref(swapped=True).shape
