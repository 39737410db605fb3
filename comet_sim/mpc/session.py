"""An MPC session: a server's strand with tensors, correlated randomness and openings.

Protocol code takes a `Session` first and calls `open`, `open_bits` and `correlated`; it never sees whether
values are real, where randomness comes from, or what carries the messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import prod
from typing import Any, Self

from comet_sim.actors import Party, Strand
from comet_sim.mpc import ring
from comet_sim.mpc.correlated import Kind, Layout, Operand, expand, layout
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.rounds import Round, Transcript
from comet_sim.mpc.settings import Truncation
from comet_sim.mpc.supply import Position, Supply
from comet_sim.mpc.tensor import WORD_BYTES, Ops, Shape, ShapeTensor

__all__ = ["Auditor", "Piece", "Session"]


class Auditor:
    """Counts truncations that wrapped, from both servers' shares: an observer outside the protocol.

    No party can count wraps (it would need the other's share). The auditor takes copies and gives nothing
    back, so a run with it has the same messages and results.
    """

    def __init__(self) -> None:
        self.truncated = 0
        self.wraps = 0
        self._pending: dict[tuple[int, int, int], deque[tuple[int, Any]]] = {}

    def truncation(
        self, strand: int, step: int, path: int, index: int, share: Any, *, local: bool = True
    ) -> None:
        """Take one server's share before truncation; compare once the other server's is there.

        An interactive truncation (not `local`) goes wrong where the value itself leaves [-2^62, 2^62).
        """
        queue = self._pending.setdefault((strand, step, path), deque())
        if not queue or queue[0][0] == index:
            queue.append((index, share))
            return
        _, other = queue.popleft()
        if not queue:
            del self._pending[strand, step, path]
        self.truncated += share.size
        first, second = (share, other) if index == 0 else (other, share)
        self.wraps += ring.wrapped(first, second) if local else ring.oversized(first + second)


def _corner(x: Any, shape: Shape) -> Any:
    """Return the first entries along each axis."""
    return x if x.shape == shape else x[tuple(slice(0, n) for n in shape)]


class Piece:
    """Correlated randomness of one program position: what the seed gives at once, and the corrected tensor.

    `form` is what was dealt; a protocol on part of the operands (`used`) takes the first entries along each axis.
    """

    __slots__ = ("_form", "_last", "_position", "_session", "_used", "seeded")

    def __init__(
        self,
        s: Session,
        position: Position,
        form: Layout,
        seeded: tuple[Any, ...],
        last: Any,
        used: Layout | None = None,
    ) -> None:
        self._session = s
        self._position = position
        self._form = form
        self._last = last
        self._used = used
        if used is not None:
            seeded = tuple(map(_corner, seeded, used.seeded))
        self.seeded = seeded

    async def corrected(self) -> Any:
        """Return the last tensor (C of a triple); server 1 may have to wait for the dealer."""
        if self._last is None:
            self._last = await self._session.corrected(self._position, self._form)
        return self._last if self._used is None else _corner(self._last, self._used.corrected)


class Session(Strand):
    """A server's strand in a two-party computation on additive shares over Z_2^64.

    `index` is 0 or 1; `peer` the other server; `bits` the fractional bits of the fixed-point encoding.
    """

    __slots__ = (
        "auditor",
        "bits",
        "dealt",
        "index",
        "masks",
        "ops",
        "peer",
        "private",
        "seed",
        "supply",
        "transcripts",
        "truncation",
    )

    def __init__(
        self,
        party: Party,
        peer: Party,
        index: int,
        ops: Ops,
        bits: int,
        supply: Supply | None,
        auditor: Auditor | None,
    ) -> None:
        super().__init__(party)
        self.peer = peer
        self.index = index
        self.ops = ops
        self.bits = bits
        # Server 1's way to corrections; server 0 and the dealer have none.
        self.supply = supply
        self.auditor = auditor
        self.seed: Prg | None = None
        self.private: Prg | None = None
        # Shape runs only; None walks every protocol in full.
        self.transcripts: dict[Any, Transcript] | None = None
        # How products are rescaled (`comet_sim.mpc.truncation`).
        self.truncation: Truncation = "local"
        # Fixed masks in use, by tensor name and version: none may hide a second tensor.
        self.masks: set[tuple[str, int]] = set()
        # While a protocol runs on part of what was dealt (`comet_sim.mpc.partial`): layouts dealt, by step.
        self.dealt: Mapping[int, Layout] | None = None

    def _init_child(self, child: Self) -> None:
        super()._init_child(child)
        child.peer = self.peer
        child.index = self.index
        child.ops = self.ops
        child.bits = self.bits
        child.supply = self.supply
        child.auditor = self.auditor
        child.seed = self.seed
        child.private = self.private
        child.transcripts = self.transcripts
        child.truncation = self.truncation
        child.masks = self.masks
        child.dealt = None

    # -- openings -------------------------------------------------------------------------------------

    async def open(self, *shares: Any) -> tuple[Any, ...]:
        """Open additive shares to both servers in one round: 8 bytes an element each way."""
        other = await self.exchange(self.peer, self.ops.pack(shares))
        theirs = self.ops.unpack(other, shares)
        return tuple(mine + their for mine, their in zip(shares, theirs, strict=True))

    async def open_bits(self, *shares: Any) -> tuple[Any, ...]:
        """Open XOR shares of 64-bit words to both servers in one round: 8 bytes a word each way."""
        other = await self.exchange(self.peer, self.ops.pack(shares))
        theirs = self.ops.unpack(other, shares)
        return tuple(mine ^ their for mine, their in zip(shares, theirs, strict=True))

    async def open_to(self, receiver: int, share: Any) -> Any:
        """Open an additive share to one server: the other sends its share, 8 bytes an element, one round.

        Returns the value at server `receiver` and None at the other, which receives nothing. (CrypTen's reveal to
        one party sends the other about half of the plaintext as well.) Not for replayable protocols.
        """
        strand, step = self.position()
        tag = f"open{strand}.{step}"
        if self.index != receiver:
            self.send(self.peer, tag, self.ops.pack((share,)))
            return None
        (theirs,) = self.ops.unpack(await self.receive(self.peer, tag), (share,))
        return share + theirs

    async def pass_to(self, receiver: int, buffer: Any) -> Any:
        """Send a buffer to one server, which gets it; None at the other. One round; not for replayable protocols."""
        strand, step = self.position()
        tag = f"pass{strand}.{step}"
        if self.index != receiver:
            self.send(self.peer, tag, buffer)
            return None
        return await self.receive(self.peer, tag)

    # -- shares from and to other parties -------------------------------------------------------------

    async def receive_share(self, peer: Party, tag: str, shape: Shape) -> Any:
        """Wait for a share another party sends, 8 bytes an element."""
        buffer = await self.receive(peer, tag)
        return self.ops.unpack(buffer, (ShapeTensor(shape),))[0]

    def send_share(self, peer: Party, tag: str, share: Any) -> None:
        """Send this server's share to another party, 8 bytes an element."""
        self.send(peer, tag, self.ops.pack((share,)))

    # -- correlated randomness ------------------------------------------------------------------------

    def correlated(self, kind: Kind, *operands: Operand) -> Piece:
        """Return this server's part of a piece of correlated randomness for the next program position."""
        form = layout(kind, *operands)
        position = self.position()
        used = None
        if self.dealt is not None:
            whole = self.dealt[position[1]]
            if whole is not form:
                form, used = whole, form
        if self.supply is not None and not self.supply.immediate:
            self.supply.request(self, position, kind, form)
        self.charge_expansion(form)
        if not self.ops.exact:
            blank = tuple(ShapeTensor(shape) for shape in form.seeded)
            return Piece(self, position, form, blank, None, used)
        assert self.seed is not None, "seeds are shared in the set-up phase"
        seeded, last = expand(form, position, self.seed, corrected=self.supply is not None)
        return Piece(self, position, form, seeded, last, used)

    async def corrected(self, position: Position, form: Layout) -> Any:
        """Return the corrected tensor of a position: server 1 takes it from its supply."""
        if self.supply is not None:
            last = await self.supply.take(self, position, form)
            if self.ops.exact:
                return last
        return ShapeTensor(form.corrected)

    async def leave(self, dealt: Mapping[int, Layout]) -> None:
        """Pass over positions whose randomness was dealt and is not needed: steps from here on, and layouts."""
        if self.supply is not None:
            for offset, form in dealt.items():
                await self.supply.leave(self, (self.id, self.step + offset), form)

    def charge_expansion(self, form: Layout) -> None:
        """Owe the work of expanding a seed."""
        words = form.seeded_words if self.supply is not None else form.seeded_words + form.corrected_words
        self.charge(0, WORD_BYTES * words)

    async def replay(self, transcript: Transcript) -> None:
        """Send and receive what the transcript says, at the positions and op paths of the protocol itself."""
        base, outer = self.step, self.path
        child = self.world.names.child
        peer, id = self.peer.id, self.id
        for round in transcript.rounds:
            self._owe(round, outer)
            self.path = child(outer, round.path) if round.path else outer
            tag = (id, base + round.offset)
            self.depth += 1
            _, ready = self._post(peer, tag, round.buffer, self.depth)
            await self._claim(peer, tag, ready)
        self._owe(transcript.tail, outer)
        if self.supply is not None:
            self.supply.use(transcript.corrected)
        self.step, self.path = base + transcript.steps, outer

    def _owe(self, round: Round, outer: int) -> None:
        self._launches += round.launches
        self._ring_ops += round.ring_ops
        self._moved += round.moved
        if round.peak > self._work_peak:
            self._work_peak = round.peak
            self._work_path = self.world.names.child(outer, round.peak_path) if round.peak_path else outer

    def random_bits(self, shape: Shape) -> Any:
        """Return this server's XOR shares of uniform bits nobody knows, one a word: local."""
        position = self.position()
        if not self.ops.exact:
            return ShapeTensor(shape)
        assert self.private is not None, "seeds are shared in the set-up phase"
        return self.private.words(position, prod(shape)).reshape(shape) & 1

    # -- local ----------------------------------------------------------------------------------------

    def truncate(self, share: Any, bits: int | None = None) -> Any:
        """Divide a share by 2^bits (default: the fractional bits) locally; error one unit in the last place.

        Protocols call `comet_sim.mpc.truncation.rescale`, which honours the run's way of truncation.
        """
        if self.auditor is not None:
            self.auditor.truncation(self.id, self.step, self.path, self.index, share)
        return self.ops.truncate(share, self.bits if bits is None else bits, self.index)

    def divide(self, share: Any, divisor: int) -> Any:
        """Divide a share by a small public integer locally; wraps as rarely as a truncation does."""
        if self.auditor is not None:
            self.auditor.truncation(self.id, self.step, self.path, self.index, share)
        return self.ops.divide(share, divisor, self.index)

    def constant(self, value: float, bits: int | None = None) -> int:
        """Return a public number in fixed point."""
        return round(value * (1 << (self.bits if bits is None else bits)))

    def add_public(self, share: Any, value: int) -> Any:
        """Add a public ring element: one server does, the other keeps its share."""
        return share + value if self.index == 0 else share
