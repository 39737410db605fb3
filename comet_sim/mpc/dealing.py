"""The dealer's side: it walks through the servers' public program and deals randomness at each position.

The walk runs the very coroutines the servers run, over shapes: openings return at once, forks run one after
the other under the names they have at the servers. So the dealer needs no list of what to deal, never sees
an input, and both sides agree on every position by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

import numpy as np

from comet_sim.actors import Party, Strand
from comet_sim.events import DealerRequest
from comet_sim.mpc.correlated import Kind, Layout, deal, layout
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Bundle, Session, Stock
from comet_sim.mpc.tensor import WORD_BYTES, Blank, Shape, ShapeOps, ShapeTensor
from comet_sim.mpc.transcript import Transcript

__all__ = ["BUNDLE_WORDS", "DealingSession", "Desk", "bundle_tag"]

T = TypeVar("T")

BUNDLE_WORDS = 1 << 17
"""Corrections travel in messages of about this many elements (1 MiB): few messages, and S1 can start early."""


def bundle_tag(number: int) -> str:
    """Return the tag of the dealer's message `number`."""
    return f"corrections{number}"


class Desk:
    """Collects corrections into bundles and sends each when it is full."""

    def __init__(
        self, receiver: Party, prgs: tuple[Prg, Prg] | None, bundle_words: int = BUNDLE_WORDS
    ) -> None:
        self.receiver = receiver
        self.prgs = prgs
        self.bundle_words = bundle_words
        self.sent = 0
        self.words = 0
        self._requests: list[tuple[int, int, int, int]] = []
        self._index: list[tuple[tuple[int, int], Shape]] = []
        self._made: list[Any] = []

    def deal(self, strand: DealingSession, kind: Kind, form: Layout, position: tuple[int, int]) -> None:
        """Make the randomness of a position of the strand."""
        intern = strand.world.names.intern
        self._requests.append(
            (strand.path, intern(kind.name), form.seeded_words + form.corrected_words, form.corrected_words)
        )
        Strand.charge(strand, form.ring_ops, WORD_BYTES * (2 * form.seeded_words + 2 * form.corrected_words))
        if self.prgs is not None:
            self._index.append((position, form.corrected))
            self._made.append(deal(kind, form, position, self.prgs).reshape(-1))
        self.words += form.corrected_words
        if self.words >= self.bundle_words:
            self.flush(strand, last=False)

    def flush(self, strand: DealingSession, *, last: bool) -> None:
        """Send what has been collected; the last bundle says so, which is public knowledge too."""
        world = strand.world
        buffer: Any
        if self.prgs is None:
            buffer = Blank(WORD_BYTES * self.words)
        else:
            words = np.concatenate(self._made) if self._made else np.zeros(0, np.int64)
            buffer = words.astype("<i8", copy=False).tobytes()
        path, strand.path = strand.path, world.names.child(0, "corrections")
        id, time = strand.send(self.receiver, bundle_tag(self.sent), Bundle(buffer, self._index, last))
        strand.path = path
        record, phase = world.observer.dealer_request, world.phase
        for op, kind, elements, correction in self._requests:
            record(DealerRequest(next(world.next_id), phase, op, time, kind, elements, correction, id))
        self.sent += 1
        self.words = 0
        self._requests, self._index, self._made = [], [], []


class DealingSession(Session):
    """A server session as the dealer walks it: same positions, no values, no waiting."""

    __slots__ = ("desk",)

    def __init__(self, party: Party, desk: Desk, bits: int) -> None:
        super().__init__(party, desk.receiver, 2, ShapeOps(), bits, Stock(), None)
        self.desk = desk

    def _init_child(self, child: Self) -> None:
        super()._init_child(child)
        child.desk = self.desk

    async def correlated(self, kind: Kind, *shapes: Shape) -> tuple[Any, ...]:
        """Deal at this position."""
        form = layout(kind, *shapes)
        self.desk.deal(self, kind, form, self.position())
        return tuple(ShapeTensor(shape) for shape in form.shapes)

    async def open(self, *shares: Any) -> tuple[Any, ...]:
        """Pass the position of an opening."""
        self.step += 1
        return shares

    open_bits = open

    async def exchange(self, peer: Party, buffer: Any) -> Any:
        """Pass the position of an exchange."""
        self.step += 1
        return buffer

    async def replay(self, transcript: Transcript) -> None:
        """Deal at each position of a transcript."""
        base, outer = self.step, self.path
        child = self.world.names.child
        for item in transcript.deals:
            self.path = child(outer, item.path) if item.path else outer
            self.desk.deal(self, item.kind, item.form, (self.id, base + item.offset))
        self.step, self.path = base + transcript.steps, outer

    async def receive(self, peer: Party, tag: str) -> Any:
        """Take the one byte with which a user goes on: randomness is dealt for the longest run."""
        return Blank(1)

    async def receive_share(self, peer: Party, tag: str, shape: Shape) -> Any:
        """Take the shape a server would receive."""
        return ShapeTensor(shape)

    def send_share(self, peer: Party, tag: str, share: Any) -> None:
        """Send nothing: the servers do."""

    def charge(self, ring_ops: int, moved: int) -> None:
        """Owe nothing for the servers' work."""

    def truncate(self, share: Any, bits: int | None = None) -> Any:
        """Keep the shape."""
        return share

    def divide(self, share: Any, divisor: int) -> Any:
        """Keep the shape."""
        return share

    def reveal(self, audience: str, what: str, why: str, elements: int) -> None:
        """Enter nothing: the servers do."""

    async def settle(self) -> None:
        """Wait for nothing."""

    async def gather(self, *parts: Callable[[Self], Coroutine[Any, Any, T]]) -> list[T]:
        """Walk the parts one after the other, on strands named as at the servers."""
        return [await part(self.fork()) for part in parts]
