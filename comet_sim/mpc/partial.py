"""Protocols on part of their operands, with randomness that was dealt for all of them.

The dealer must not learn which entries the servers work on, so it deals for every entry, whatever the mask
says; the servers take the first pieces for the entries they have and leave the rest. Source: reconstruction.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from comet_sim.mpc.correlated import Layout
from comet_sim.mpc.rounds import Transcript
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import Shape, ShapeTensor
from comet_sim.mpc.transcript import signature, walk

__all__ = ["Partial"]

Protocol = Callable[..., Coroutine[Any, Any, Any]]


class Partial:
    """Runs protocols on part of what was dealt; remembers what a protocol is dealt at each of its positions."""

    def __init__(self) -> None:
        self._walks: dict[Any, tuple[Transcript, Mapping[int, Layout]]] = {}

    def _walked(self, s: Session, protocol: Protocol, whole: Shape, args: tuple[Any, ...]) -> Any:
        """Return the transcript of the protocol on whole operands, and the layouts dealt, by offset."""
        key = (protocol, whole, *map(signature, args))
        found = self._walks.get(key)
        if found is None:
            transcript = walk(s, protocol, (ShapeTensor(whole), *args), {})
            found = self._walks[key] = (transcript, {item.offset: item.form for item in transcript.deals})
        return found

    async def run(
        self,
        s: Session,
        protocol: Protocol,
        x: Any,
        whole: Shape,
        args: tuple[Any, ...] = (),
        whole_args: tuple[Any, ...] | None = None,
    ) -> Any:
        """Run `protocol(s, x, *args)` where randomness was dealt for `protocol(s, <shape whole>, *whole_args)`.

        x has no axis longer than `whole`, and the protocol the same positions whatever the shape; it must not fork.
        With no entries at all, nothing is sent; x is returned.
        """
        if x.shape == whole:
            return await protocol(s, x, *args)
        transcript, dealt = self._walked(s, protocol, whole, args if whole_args is None else whole_args)
        if x.size == 0:
            await s.leave(dealt)
            s.step += transcript.steps
            return x
        base = s.step
        if s.transcripts is not None:
            key = (protocol, s.index, x.shape, whole, *map(signature, args))
            part = s.transcripts.get(key)
            if part is None:
                part = s.transcripts[key] = walk(s, protocol, (x, *args), {}, dealt)
            await s.replay(part)
            return part.result
        s.dealt = {base + offset: form for offset, form in dealt.items()}
        try:
            return await protocol(s, x, *args)
        finally:
            s.dealt = None
