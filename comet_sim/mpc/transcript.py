"""Transcripts: in a shape run a protocol's messages depend only on its operands' shapes, so walk it once.

`replayable` marks such a protocol. In a shape run its coroutine is walked the first time a shape is met, and
from then on the list of rounds is replayed: same messages, positions, paths, dealt randomness and compute,
at a fraction of the cost. An exact run never uses this, and a test holds both against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np

from comet_sim.actors import Party
from comet_sim.events import Names
from comet_sim.mpc.correlated import Kind, Layout, Operand, layout
from comet_sim.mpc.rounds import Deal, Round, Transcript
from comet_sim.mpc.session import Piece, Session
from comet_sim.mpc.tensor import Blank, ShapeOps, ShapeTensor

__all__ = ["replayable", "signature", "walk"]

P = ParamSpec("P")
T = TypeVar("T")


class _WalkWorld:
    """Stands in for the world during a walk: op paths relative to the protocol, and nothing else."""

    def __init__(self) -> None:
        self.names = Names()


class _Walk(Session):
    """A session that goes through a protocol without sending, and writes down what it would do."""

    __slots__ = ("deals", "round", "rounds")

    def __init__(self, like: Session) -> None:
        super().__init__(like.party, like.peer, like.index, ShapeOps(), like.bits, like.supply, None)
        self.world = _WalkWorld()  # type: ignore[assignment]
        self.truncation = like.truncation
        self.rounds: list[Round] = []
        self.deals: list[Deal] = []
        self.round = Round()

    def charge(self, ring_ops: int, moved: int) -> None:
        """Add to the work of the round."""
        now = self.round
        now.launches += 1
        now.ring_ops += ring_ops
        now.moved += moved
        if ring_ops + moved > now.peak:
            now.peak = ring_ops + moved
            now.peak_path = self.world.names.text(self.path)

    def correlated(self, kind: Kind, *operands: Operand) -> Piece:
        """Note what is dealt here, and the work of expanding it."""
        form = layout(kind, *operands)
        position = self.position()
        used = None
        if self.dealt is not None:
            form, used = self.dealt[position[1]], form
        self.deals.append(Deal(self.world.names.text(self.path), position[1], kind, form))
        self.charge_expansion(form)
        seeded = tuple(ShapeTensor(shape) for shape in form.seeded)
        return Piece(self, position, form, seeded, ShapeTensor(form.corrected), used)

    async def exchange(self, peer: Party, buffer: Any) -> Any:
        """End the round."""
        now = self.round
        now.path = self.world.names.text(self.path)
        now.offset = self.step
        now.buffer = Blank(len(buffer))
        self.step += 1
        self.rounds.append(now)
        self.round = Round()
        return buffer

    def fork(self) -> Self:
        """Refuse: strands of a fork have rounds of their own."""
        raise RuntimeError("a replayable protocol must not fork")

    async def gather(self, *parts: Callable[[Self], Coroutine[Any, Any, T]]) -> list[T]:
        """Refuse as `fork` does."""
        self.fork()
        return []


def signature(value: Any) -> Any:
    """Return what a transcript may depend on: shapes of tensors, contents of public arrays and settings."""
    if isinstance(value, ShapeTensor):
        return value.shape
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return value


def walk(
    s: Session,
    protocol: Callable[..., Coroutine[Any, Any, Any]],
    args: Any,
    kwargs: Any,
    dealt: Mapping[int, Layout] | None = None,
) -> Transcript:
    """Walk a protocol and return its transcript; raises when it waits for anything but an exchange.

    `dealt`: the layouts dealt at its positions, where it works on part of them.
    """
    walker = _Walk(s)
    walker.dealt = dealt
    coroutine = protocol(walker, *args, **kwargs)
    try:
        coroutine.send(None)
    except StopIteration as done:
        corrected = sum(item.form.corrected_words for item in walker.deals)
        return Transcript(walker.rounds, walker.round, walker.deals, corrected, walker.step, done.value)
    coroutine.close()
    raise RuntimeError(f"{protocol.__qualname__} waits for more than exchanges: it is not replayable")


def replayable(
    protocol: Callable[Concatenate[Session, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]:
    """Mark a protocol whose transcript depends on its operands' shapes alone and that does not fork."""

    @wraps(protocol)
    async def run(s: Session, *args: P.args, **kwargs: P.kwargs) -> T:
        transcripts = s.transcripts
        if transcripts is None or type(s) is _Walk or s.dealt is not None:
            return await protocol(s, *args, **kwargs)
        key = (
            protocol,
            s.index,
            *(signature(value) for value in args),
            *((name, signature(value)) for name, value in kwargs.items()),
        )
        transcript = transcripts.get(key)
        if transcript is None:
            transcript = transcripts[key] = walk(s, protocol, args, kwargs)
        await s.replay(transcript)
        result: T = transcript.result
        return result

    return cast("Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]", run)
