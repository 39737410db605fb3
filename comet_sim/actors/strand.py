"""A strand: one thread of control of a party, which sends, receives, computes, forks and joins.

A strand knows where it is (op path), how deep it is (rounds) and what enabled it (cause). It owes the
device the local work done since its last message; the debt is paid, as one compute span, before the next
message leaves. That way a message's time needs no task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from comet_sim.actors.party import Party
from comet_sim.events import NO_CAUSE, Compute, Reveal
from comet_sim.network import Envelope

__all__ = ["Scope", "Strand"]

T = TypeVar("T")

_MASK = (1 << 64) - 1


def _child_id(parent: int, index: int) -> int:
    """Name a forked strand so that every party derives the same name: splitmix64 of parent and fork index."""
    z = (parent + 0x9E3779B97F4A7C15 * (index + 1)) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) >> 1


class Scope:
    """A named part of a program; `with strand.scope("ffn"):` extends the op path inside the block."""

    __slots__ = ("_outer", "_path", "_strand")

    def __init__(self, strand: Strand, path: int) -> None:
        self._strand = strand
        self._path = path

    def __enter__(self) -> None:
        self._outer = self._strand.path
        self._strand.path = self._path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._strand.path = self._outer


class Strand:
    """One thread of control of a party. `send`, `receive`, `exchange` are the transport seam.

    A protocol sees buffers (anything with `len` in bytes) and tags; whether they cross a simulated link is
    decided by the network behind the party.
    """

    __slots__ = (
        "_awaited",
        "_forks",
        "_launches",
        "_moved",
        "_ready",
        "_ring_ops",
        "_work_path",
        "_work_peak",
        "cause",
        "depth",
        "id",
        "party",
        "path",
        "priority",
        "step",
        "world",
    )

    def __init__(self, party: Party, id: int = 0) -> None:
        self.party = party
        self.world = party.world
        self.id = id
        self.path = 0
        self.depth = 0
        self.cause = NO_CAUSE
        self.priority = 0
        self.step = 0
        self._forks = 0
        self._awaited = NO_CAUSE
        self._ready = 0
        self._ring_ops = 0
        self._moved = 0
        self._launches = 0
        self._work_path = 0
        self._work_peak = -1

    def __str__(self) -> str:
        text = self.world.names.text
        sender = "nobody" if self._awaited == NO_CAUSE else text(self._awaited)
        return f"a message from {sender} for op {text(self.path) or 'root'}"

    # -- position -------------------------------------------------------------------------------------

    def scope(self, name: str) -> Scope:
        """Extend the op path by `name` inside a `with` block."""
        return Scope(self, self.world.names.child(self.path, name))

    def position(self) -> tuple[int, int]:
        """Return the next program position (strand, step): the name under which randomness is dealt."""
        step = self.step
        self.step = step + 1
        return self.id, step

    # -- compute --------------------------------------------------------------------------------------

    def charge(self, ring_ops: int, moved: int) -> None:
        """Owe the device one local operation: ring multiply-adds, and bytes read and written."""
        self._ring_ops += ring_ops
        self._moved += moved
        self._launches += 1
        # One span may hold work of two ops (the end of one, the start of the next); the larger names it.
        weight = ring_ops + moved
        if weight > self._work_peak:
            self._work_peak = weight
            self._work_path = self.path

    def _pay(self) -> int:
        """Turn the debt into a compute span; return when the strand may act: now, or when its work is done."""
        now = self.world.loop.now_ns
        # After `send`, a strand goes on while its work is still being done.
        if now < self._ready:
            now = self._ready
        if not self._launches:
            return now
        device = self.party.device
        cost = device.profile.cost(self._ring_ops, self._moved, self._launches)
        end = now
        if cost:
            world = self.world
            start, end = device.reserve(now, cost)
            id = next(world.next_id)
            world.observer.compute(
                Compute(
                    id, world.phase, self._work_path, self.party.id, self.cause, now, start, end,
                    self._ring_ops, self._moved,
                )
            )  # fmt: skip
            self.cause = id
        self._ring_ops = self._moved = self._launches = 0
        self._work_peak = -1
        self._ready = end
        return end

    async def settle(self) -> None:
        """Wait until all local work owed so far is done."""
        loop = self.world.loop
        end = self._pay()
        if end > loop.now_ns:
            await loop.sleep_until(end)

    def resume(self, cause: int) -> None:
        """Go on because of an event that has just ended, unless own work still holds the strand."""
        if self.world.loop.now_ns >= self._ready:
            self.cause = cause

    # -- messages -------------------------------------------------------------------------------------

    def _post(self, peer: int, tag: Any, buffer: Any, depth: int) -> tuple[int, int]:
        """Hand a message to the network once the work before it is done; return its id and that time."""
        world = self.world
        loop = world.loop
        end = self._pay()
        id = next(world.next_id)
        envelope = Envelope(
            id, world.phase, self.path, self.party.id, peer, (self.party.id, tag), buffer,
            len(buffer), depth, self.priority, self.cause, end,
        )  # fmt: skip
        if end > loop.now_ns:
            loop.post(end, world.network.send, envelope)
        else:
            world.network.send(envelope)
        return id, end

    async def _claim(self, peer: int, tag: Any, ready: int) -> Envelope:
        """Wait for a message; go on when it is there and the device is done (`ready`)."""
        mailbox = self.party.mailbox
        loop = self.world.loop
        key = (peer, tag)
        envelope = mailbox.take(key)
        if envelope is None:
            self._awaited = peer
            envelope = await mailbox.wait(key, self)
            if loop.now_ns >= ready:
                self.cause = envelope.id
        if loop.now_ns < ready:
            await loop.sleep_until(ready)
        if envelope.depth > self.depth:
            self.depth = envelope.depth
        return envelope

    def send(self, peer: Party, tag: str, buffer: Any, *, counted: bool = True) -> tuple[int, int]:
        """Send a buffer under a tag that is unique between the two parties; it leaves when local work is done.

        A message that is not `counted` has depth 0: it is no round. Returns the message's id and the virtual
        time it leaves at, ns.
        """
        return self._post(peer.id, tag, buffer, self.depth + 1 if counted else 0)

    async def receive(self, peer: Party, tag: str) -> Any:
        """Wait for the buffer a peer sent under a tag; local work owed so far is done meanwhile."""
        return (await self._claim(peer.id, tag, self._pay())).payload

    async def receive_envelope(self, peer: Party, tag: str) -> Envelope:
        """Wait for a message as `receive` does; return it with its op path and id."""
        return await self._claim(peer.id, tag, self._pay())

    async def exchange(self, peer: Party, buffer: Any) -> Any:
        """Send a buffer to the peer and return the one it sends at the same program position: one round."""
        tag = self.position()
        self.depth += 1
        _, ready = self._post(peer.id, tag, buffer, self.depth)
        return (await self._claim(peer.id, tag, ready)).payload

    # -- fork and join --------------------------------------------------------------------------------

    def fork(self) -> Self:
        """Return a child strand at this point, named by the fork's place in the program."""
        child = type(self).__new__(type(self))
        self._init_child(child)
        return child

    def _init_child(self, child: Self) -> None:
        Strand.__init__(child, self.party, _child_id(self.id, self._forks))
        self._forks += 1
        child.path = self.path
        child.depth = self.depth
        child._ready = self._ready
        child.cause = self.cause
        child.priority = self.priority

    async def gather(self, *parts: Callable[[Self], Coroutine[Any, Any, T]]) -> list[T]:
        """Run parts of the program side by side, each on its own child strand, and join them.

        Children inherit depth and cause; the join takes the largest depth and the cause of the child that
        finished last. Returns the results in the order given.
        """
        await self.settle()
        children = [self.fork() for _ in parts]
        finished: list[int] = []

        async def run(index: int) -> T:
            child = children[index]
            result = await parts[index](child)
            await child.settle()
            finished.append(index)
            return result

        name = self.party.name
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(index), name=name) for index in range(len(parts))]
        self.depth = max([self.depth, *(child.depth for child in children)])
        if finished:
            self.cause = children[finished[-1]].cause
        return [task.result() for task in tasks]

    # -- ledger ---------------------------------------------------------------------------------------

    def reveal(self, audience: str, what: str, why: str, elements: int) -> None:
        """Enter an opened value in the reveal ledger; one party records it for all."""
        world = self.world
        intern = world.names.intern
        world.observer.reveal(
            Reveal(
                next(world.next_id), world.phase, self.path, world.loop.now_ns, intern(audience), intern(what),
                intern(why), elements,
            )
        )  # fmt: skip
