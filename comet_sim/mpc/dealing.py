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
from comet_sim.errors import InputError
from comet_sim.events import DealerRequest
from comet_sim.mpc.correlated import Kind, Layout, Operand, deal, layout
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.rounds import Transcript
from comet_sim.mpc.session import Piece, Session
from comet_sim.mpc.supply import Bundle, Position, bundle_tag, credit_tag
from comet_sim.mpc.tensor import WORD_BYTES, Blank, Shape, ShapeOps, ShapeTensor

__all__ = ["BUNDLE_WORDS", "DealingSession", "Desk", "deal_one"]

T = TypeVar("T")

BUNDLE_WORDS = 1 << 17
"""Corrections travel in messages of about this many elements (1 MiB): few messages, and S1 can start early."""


def deal_one(
    strand: Strand, prgs: tuple[Prg, Prg] | None, position: Position, kind: Kind, form: Layout
) -> Any:
    """Make the correction of a position (flat; None in shape runs) and owe the dealer's device the work."""
    Strand.charge(strand, form.ring_ops, WORD_BYTES * (2 * form.seeded_words + 2 * form.corrected_words))
    return None if prgs is None else deal(kind, form, position, prgs).reshape(-1)


def record_dealt(strand: Strand, op: int, kind: Kind, form: Layout, time: int, message: int) -> None:
    """Tell observers of one dealt piece and the message that carries its correction."""
    world = strand.world
    world.observer.dealer_request(
        DealerRequest(
            next(world.next_id),
            world.phase,
            op,
            time,
            world.names.intern(kind.name),
            form.seeded_words + form.corrected_words,
            form.corrected_words,
            message,
        )
    )


class Desk:
    """Collects corrections into bundles and sends each when it is full.

    With a `bound` (elements), the desk runs at most that far ahead of what server 1 has used up. InputError for
    a piece larger than the bound: server 1 needs a piece whole, so no stock of that size can serve it.
    """

    def __init__(
        self,
        receiver: Party,
        prgs: tuple[Prg, Prg] | None,
        *,
        bound: int | None = None,
        bundle_words: int = BUNDLE_WORDS,
    ) -> None:
        self.receiver = receiver
        self.prgs = prgs
        self.bound = bound
        # Two bundles fit the stock, so that one can be under way while the other is used.
        self.bundle_words = bundle_words if bound is None else min(bundle_words, max(1, bound // 2))
        self.counted = bound is None
        self._sent: list[int] = []
        self._credits = 0
        self._ahead = 0
        self._words = 0
        self._requests: list[tuple[int, Kind, Layout]] = []
        self._index: list[tuple[Position, Shape]] = []
        self._made: list[Any] = []

    def deal(self, strand: DealingSession, kind: Kind, form: Layout, position: Position) -> None:
        """Make the randomness of a position of the strand."""
        if self.bound is not None and form.corrected_words > self.bound:
            path = strand.world.names.text(strand.path)
            raise InputError(
                f"a stock of {WORD_BYTES * self.bound:,} bytes cannot hold the {WORD_BYTES * form.corrected_words:,} "
                f"bytes of one piece of correlated randomness ({kind.name} at {path or 'root'})"
            )
        if self._words and self._words + form.corrected_words > self.bundle_words:
            self.flush(strand, last=False)
        self._requests.append((strand.path, kind, form))
        made = deal_one(strand, self.prgs, position, kind, form)
        if made is not None:
            self._made.append(made)
        if self.prgs is not None or self.bound is not None:
            self._index.append((position, form.corrected))
        self._words += form.corrected_words

    def flush(self, strand: DealingSession, *, last: bool) -> None:
        """Send what has been collected; the last bundle says so, which is public knowledge too."""
        buffer: Any
        if self.prgs is None:
            buffer = Blank(WORD_BYTES * self._words)
        else:
            words = np.concatenate(self._made) if self._made else np.zeros(0, np.int64)
            buffer = words.astype("<i8", copy=False).tobytes()
        path, strand.path = strand.path, strand.world.names.child(0, "corrections")
        bundle = Bundle(buffer, self._index, last)
        id, time = strand.send(self.receiver, bundle_tag(len(self._sent)), bundle, counted=self.counted)
        strand.path = path
        for op, kind, form in self._requests:
            record_dealt(strand, op, kind, form, time, id)
        self._sent.append(self._words)
        self._ahead += self._words
        self._words = 0
        self._requests, self._index, self._made = [], [], []

    async def room(self, strand: DealingSession) -> None:
        """Wait until the receiver's stock is below the bound again."""
        if self.bound is None:
            return
        # The bundle in the making will be sent without asking again: room for all of it, full or oversized.
        ahead = self.bound - max(self.bundle_words, self._words)
        while self._ahead > ahead and self._credits < len(self._sent):
            await strand.wait(self.receiver, credit_tag(self._credits))
            self._ahead -= self._sent[self._credits]
            self._credits += 1


class DealingSession(Session):
    """A server session as the dealer walks it: same positions, no values, no waiting for servers."""

    __slots__ = ("desk",)

    def __init__(self, party: Party, desk: Desk, bits: int) -> None:
        super().__init__(party, desk.receiver, 2, ShapeOps(), bits, None, None)
        self.desk = desk

    def _init_child(self, child: Self) -> None:
        super()._init_child(child)
        child.desk = self.desk

    def correlated(self, kind: Kind, *operands: Operand) -> Piece:
        """Deal at this position."""
        form = layout(kind, *operands)
        position = self.position()
        self.desk.deal(self, kind, form, position)
        return Piece(self, position, form, tuple(ShapeTensor(shape) for shape in form.seeded), None)

    async def corrected(self, position: Position, form: Layout) -> Any:
        """Go on when the receiver's stock has room."""
        await self.desk.room(self)
        return ShapeTensor(form.corrected)

    async def open(self, *shares: Any) -> tuple[Any, ...]:
        """Pass the position of an opening."""
        self.step += 1
        return shares

    open_bits = open

    async def pass_to(self, receiver: int, buffer: Any) -> Any:
        """Pass the position of a one-way message."""
        self.step += 1
        return buffer

    async def open_to(self, receiver: int, share: Any) -> Any:
        """Pass the position of an opening to one server."""
        self.step += 1
        return share

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

    async def wait(self, peer: Party, tag: str) -> Any:
        """Wait for a message to the dealer itself."""
        return await super().receive(peer, tag)

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
