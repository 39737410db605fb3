"""Where server 1's corrections come from: dealt before, asked for one by one, or streamed with a bounded stock.

Server 0 needs nothing of the dealer but its seed. A supply is asked at a program position (`request`), and
again when the correction is needed, which is after the opening it masks (`take`): a round trip to the dealer
can hide behind the servers' own.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from comet_sim.actors import Party, Strand
from comet_sim.errors import CometSimError
from comet_sim.kernel import Wake
from comet_sim.mpc.correlated import KINDS, Half, Kind, Layout, MaskRef, Operand, Order, Waves, layout
from comet_sim.mpc.tensor import WORD_BYTES, Ops, Shape, ShapeTensor

__all__ = [
    "Bundle",
    "OnDemand",
    "Position",
    "Stock",
    "Streamed",
    "Supply",
    "bundle_tag",
    "correction_tag",
    "credit_tag",
    "decode_request",
    "request_tag",
]

Position = tuple[int, int]
"""Program position: strand and step."""

UNCOUNTED = -1
"""Depth of a strand whose messages are no rounds: dealer traffic of the online phase is counted apart."""


def bundle_tag(number: int) -> str:
    """Return the tag of the dealer's bundle `number`."""
    return f"corrections{number}"


def credit_tag(number: int) -> str:
    """Return the tag of the notice that bundle `number` is used up."""
    return f"credit{number}"


def request_tag(number: int) -> str:
    """Return the tag of server 1's request `number`."""
    return f"request{number}"


def correction_tag(position: Position) -> str:
    """Return the tag of the reply to the request for a position."""
    return f"correction{position}"


class Supply(Protocol):
    """Server 1's way to corrections."""

    immediate: bool
    """Whether `take` never waits and `request` sends nothing: then whole transcripts can be replayed."""
    elements: int
    peak_elements: int

    def request(self, s: Strand, position: Position, kind: Kind, form: Layout) -> None:
        """Say that the position is reached."""

    async def take(self, s: Strand, position: Position, form: Layout) -> Any:
        """Return the correction of a position, which serves once (None in shape runs)."""

    async def leave(self, s: Strand, position: Position, form: Layout) -> None:
        """Pass over a position whose correction is not needed; what was dealt ahead is thrown away."""

    def use(self, elements: int) -> None:
        """Take `elements` correction elements off the stock: a replayed transcript."""


class Bundle:
    """Corrections for consecutive program positions in one message of the dealer.

    The buffer is the corrections alone, 8 bytes an element. The index (position, shape) is not sent: the
    receiver can derive it from the public program, as the dealer did. It is empty where nobody reads it.
    """

    __slots__ = ("buffer", "index", "last")

    def __init__(self, buffer: Any, index: list[tuple[Position, Shape]], last: bool) -> None:
        self.buffer = buffer
        self.index = index
        self.last = last

    def __len__(self) -> int:
        return len(self.buffer)


def _unpack(bundle: Bundle, ops: Ops) -> list[tuple[Position, Any]]:
    parts = ops.unpack(bundle.buffer, tuple(ShapeTensor(shape) for _, shape in bundle.index))
    return [(position, part) for (position, _), part in zip(bundle.index, parts, strict=True)]


class Stock:
    """Everything dealt in the offline phase: nothing to ask for, nothing to wait for."""

    immediate = True

    def __init__(self, ops: Ops) -> None:
        self.elements = 0
        self.peak_elements = 0
        self._ops = ops
        self._items: dict[Position, Any] = {}

    def add(self, bundle: Bundle) -> None:
        """Store a bundle."""
        self.elements += len(bundle.buffer) // WORD_BYTES
        self.peak_elements = max(self.peak_elements, self.elements)
        if self._ops.exact:
            self._items.update(_unpack(bundle, self._ops))

    def request(self, s: Strand, position: Position, kind: Kind, form: Layout) -> None:
        """Ask nobody."""

    async def leave(self, s: Strand, position: Position, form: Layout) -> None:
        """Throw the correction away."""
        await self.take(s, position, form)

    def use(self, elements: int) -> None:
        """Count elements as used."""
        self.elements -= elements

    async def take(self, s: Strand, position: Position, form: Layout) -> Any:
        """Return the correction of a position."""
        self.elements -= form.corrected_words
        if not self._ops.exact:
            return None
        try:
            return self._items.pop(position)
        except KeyError:
            raise CometSimError(
                f"no correlated randomness was dealt for program position {position} of shape {form.corrected}"
            ) from None


class OnDemand:
    """A request to the dealer at each position, and a reply with the correction."""

    immediate = False

    def __init__(self, ops: Ops, dealer: Party) -> None:
        self.elements = 0
        self.peak_elements = 0
        self._ops = ops
        self._dealer = dealer
        self._sent = 0

    def request(self, s: Strand, position: Position, kind: Kind, form: Layout) -> None:
        """Ask the dealer: position, kind and operand shapes, a few dozen bytes."""
        s.send(self._dealer, request_tag(self._sent), encode_request(position, kind, form), counted=False)
        self._sent += 1

    def finish(self, strand: Strand) -> None:
        """Tell the dealer that no request will follow."""
        strand.send(self._dealer, request_tag(self._sent), b"", counted=False)

    async def leave(self, s: Strand, position: Position, form: Layout) -> None:
        """Ask for nothing."""

    def use(self, elements: int) -> None:
        """Keep no stock."""

    async def take(self, s: Strand, position: Position, form: Layout) -> Any:
        """Wait for the reply."""
        buffer = await s.receive(self._dealer, correction_tag(position))
        self.peak_elements = max(self.peak_elements, form.corrected_words)
        return self._ops.unpack(buffer, (ShapeTensor(form.corrected),))[0]


class Streamed:
    """The dealer runs ahead; a bounded stock is kept, and each bundle used up gives the dealer credit."""

    immediate = False

    def __init__(self, ops: Ops, dealer: Party) -> None:
        self.elements = 0
        self.peak_elements = 0
        self._ops = ops
        self._dealer = dealer
        self._items: dict[Position, tuple[int, Any]] = {}
        self._left: dict[int, int] = {}
        self._waiting: dict[Position, Wake] = {}

    async def fill(self, strand: Strand) -> None:
        """Receive bundles until the last one: a task of server 1 beside its program."""
        number = 0
        while True:
            bundle: Bundle = await strand.receive(self._dealer, bundle_tag(number))
            self.elements += len(bundle.buffer) // WORD_BYTES
            self.peak_elements = max(self.peak_elements, self.elements)
            self._left[number] = len(bundle.index)
            for position, part in _unpack(bundle, self._ops):
                self._items[position] = (number, part)
                wake = self._waiting.pop(position, None)
                if wake is not None and not wake.done():
                    wake.set(strand.cause)
            if bundle.last:
                return
            number += 1

    def request(self, s: Strand, position: Position, kind: Kind, form: Layout) -> None:
        """Ask nobody: the dealer knows the program."""

    async def leave(self, s: Strand, position: Position, form: Layout) -> None:
        """Throw the correction away once it is there: the dealer waits for the credit."""
        await self.take(s, position, form)

    def use(self, elements: int) -> None:
        """Refuse: which positions were used must be known."""
        raise RuntimeError("a streamed supply is taken from position by position")

    async def take(self, s: Strand, position: Position, form: Layout) -> Any:
        """Return the correction, waiting for its bundle when the dealer is late."""
        if position not in self._items:
            wake = self._waiting[position] = Wake(s.world.loop, f"corrections from dealer for {s}")
            s.resume(await wake)
        number, part = self._items.pop(position)
        self.elements -= form.corrected_words
        self._left[number] -= 1
        if not self._left[number]:
            del self._left[number]
            s.send(self._dealer, credit_tag(number), number.to_bytes(WORD_BYTES, "little"), counted=False)
        return part


_HEAD = struct.Struct("<qqBB6x")
_MASK = struct.Struct("<qqqqqqq")
_HALF = struct.Struct("<qqqqqq"), struct.Struct("<qqqq")


def encode_request(position: Position, kind: Kind, form: Layout) -> bytes:
    """Return a request as bytes: position 16, kind and number of operands 8, then 8 + 8 d an operand of d axes.

    An operand with a fixed mask names it: 56 bytes, its axes, and the name. Half of a shuffle names its order: 80
    bytes, its axes, and the name. Sines of a phase: 40 bytes
    and the axes.
    """
    parts = [_HEAD.pack(*position, KINDS.index(kind), len(form.operands))]
    for operand in form.operands:
        if isinstance(operand, Half):
            order = operand.order
            name = order.name.encode()
            about = (-2, len(name), order.version, order.count, order.group, order.coarse)
            half = (operand.holder, operand.inverse, operand.axis, len(operand.shape), *operand.shape)
            parts += [struct.pack(f"<{len(about) + len(half)}q", *about, *half), name]
        elif isinstance(operand, Waves):
            waves = (-3, operand.terms, operand.period, operand.bits, len(operand.shape), *operand.shape)
            parts.append(struct.pack(f"<{len(waves)}q", *waves))
        elif isinstance(operand, MaskRef):
            name = operand.name.encode()
            shape = operand.rest
            figures = (
                -1,
                len(name),
                operand.version,
                operand.axis,
                operand.rows,
                operand.swapped,
                len(shape),
            )
            parts += [_MASK.pack(*figures), struct.pack(f"<{len(shape)}q", *shape), name]
        else:
            parts.append(struct.pack(f"<{1 + len(operand)}q", len(operand), *operand))
    return b"".join(parts)


def decode_request(buffer: bytes) -> tuple[Position, Kind, Layout]:
    """Read a request."""
    strand, step, kind, operands = _HEAD.unpack_from(buffer)
    at = _HEAD.size
    found: list[Operand] = []
    for _ in range(operands):
        (axes,) = struct.unpack_from("<q", buffer, at)
        if axes >= 0:
            found.append(struct.unpack_from(f"<{axes}q", buffer, at + WORD_BYTES))
            at += WORD_BYTES * (1 + axes)
            continue
        if axes == -2:
            _, length, version, count, group, coarse = _HALF[0].unpack_from(buffer, at)
            at += _HALF[0].size
            holder, inverse, axis, axes = _HALF[1].unpack_from(buffer, at)
            at += _HALF[1].size
            shape = struct.unpack_from(f"<{axes}q", buffer, at)
            at += WORD_BYTES * axes
            order = Order(buffer[at : at + length].decode(), version, count, group, bool(coarse))
            at += length
            found.append(Half(order, holder, bool(inverse), axis, shape))
            continue
        if axes == -3:
            _, terms, period, bits, axes = struct.unpack_from("<5q", buffer, at)
            at += 5 * WORD_BYTES
            found.append(Waves(struct.unpack_from(f"<{axes}q", buffer, at), terms, period, bits))
            at += WORD_BYTES * axes
            continue
        _, length, version, axis, rows, swapped, axes = _MASK.unpack_from(buffer, at)
        rest = struct.unpack_from(f"<{axes}q", buffer, at + _MASK.size)
        at += _MASK.size + WORD_BYTES * axes
        name = buffer[at : at + length].decode()
        at += length
        found.append(MaskRef(name, version, axis, rows, rest, bool(swapped)))
    return (strand, step), KINDS[kind], layout(KINDS[kind], *found)
