"""A party: an actor with a mailbox, a device and a vault only its own tasks can open."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextvars import ContextVar
from itertools import count
from typing import Any, TypeVar

from comet_sim.actors.device import Device, DeviceProfile
from comet_sim.errors import PrivacyError
from comet_sim.events import Names, Observer, Phase
from comet_sim.kernel import VirtualLoop, Wake
from comet_sim.network import Envelope, Network

__all__ = ["Mailbox", "Party", "Vault", "World", "acting_party"]

T = TypeVar("T")

_acting: ContextVar[Party | None] = ContextVar("comet_sim_acting_party", default=None)


def acting_party() -> str | None:
    """Return the name of the party whose task is running, or None outside any party."""
    acting = _acting.get()
    return acting.name if acting else None


class World:
    """What all parties of one run share: the clock, the network, names, ids and observers. It holds no secret."""

    __slots__ = ("loop", "names", "network", "next_id", "observer", "parties", "phase")

    def __init__(self, loop: VirtualLoop, names: Names, observer: Observer) -> None:
        self.loop = loop
        self.names = names
        self.observer = observer
        self.next_id: Iterator[int] = count()
        self.phase = Phase.SETUP
        self.parties: dict[int, Party] = {}
        self.network: Network

    def deliver(self, envelope: Envelope) -> None:
        """Hand a message to the mailbox of the party it is for; the network calls this at delivery time."""
        self.parties[envelope.dst].mailbox.deliver(envelope)


class Mailbox:
    """Messages for one party, each claimed once by sender and tag, in whatever order they arrive."""

    __slots__ = ("_arrived", "_loop", "_waiting")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._arrived: dict[Any, Envelope] = {}
        self._waiting: dict[Any, Wake] = {}

    def deliver(self, envelope: Envelope) -> None:
        """Wake the task that waits for this message, or keep it until one asks."""
        wake = self._waiting.pop(envelope.key, None)
        if wake is not None and not wake.done():
            wake.set(envelope)
        elif envelope.key in self._arrived:
            raise RuntimeError(f"two messages carry the key {envelope.key}: tags must be unique")
        else:
            self._arrived[envelope.key] = envelope

    def take(self, key: Any) -> Envelope | None:
        """Return the message if it is already there."""
        return self._arrived.pop(key, None)

    def wait(self, key: Any, waiting_for: object) -> Wake:
        """Return an awaitable of a message that is not there yet; `waiting_for` names it in a deadlock report."""
        wake = self._waiting[key] = Wake(self._loop, waiting_for)
        return wake

    def unclaimed(self) -> int:
        """Return how many delivered messages nobody has asked for."""
        return len(self._arrived)


class Vault:
    """A party's secrets: shares, seeds, plain values. Any access from another party's task raises."""

    __slots__ = ("_items", "_owner")

    def __init__(self, owner: Party) -> None:
        self._owner = owner
        self._items: dict[str, Any] = {}

    def _check(self, name: str) -> None:
        acting = _acting.get()
        # By identity, not by name: every simulation in the process has a party called server0.
        if acting is not self._owner:
            owner = self._owner.name
            who = f"party {acting.name}" if acting else "code outside any party"
            if acting and acting.name == owner:
                who += " of another simulation"
            raise PrivacyError(f"{who} tried to use {name!r} in the vault of {owner}")

    def __getitem__(self, name: str) -> Any:
        self._check(name)
        return self._items[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name)
        self._items[name] = value

    def __contains__(self, name: str) -> bool:
        self._check(name)
        return name in self._items

    def __repr__(self) -> str:
        return f"<Vault of {self._owner.name}>"


class Party:
    """One actor of a run: the user, a server, the dealer or the model owner."""

    __slots__ = ("device", "id", "mailbox", "name", "vault", "world")

    def __init__(self, world: World, name: str, device: DeviceProfile) -> None:
        self.world = world
        self.name = name
        self.id = world.names.intern(name)
        self.mailbox = Mailbox(world.loop)
        self.device = Device(device)
        self.vault = Vault(self)
        world.parties[self.id] = self

    async def act(self, program: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as this party: only tasks started this way, and their children, open its vault."""
        token = _acting.set(self)
        try:
            return await program
        finally:
            _acting.reset(token)

    def start(self, group: asyncio.TaskGroup, program: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a program of this party in a task group; the task carries the party's name."""
        return group.create_task(self.act(program), name=self.name)
