"""Link studies: when do messages arrive over a given network, without any secure computation.

import comet_sim
for row in comet_sim.time_messages([("0ms", "server0", "server1", "1MB")], "wan-100m"):
    print(row.delivered)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE, Message, Names, Phase
from comet_sim.kernel import VirtualLoop
from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Envelope
from comet_sim.network.profiles import PARTIES, LinkSpec, NetworkSpec, load_profile
from comet_sim.network.topology import Network, Topology
from comet_sim.units import parse_duration, parse_size

__all__ = ["AnyNetwork", "Given", "Pattern", "Timed", "as_topology", "exchange", "ping_pong", "time_messages"]

Given: TypeAlias = tuple[int | str, str, str, int | str] | tuple[int | str, str, str, int | str, int]
"""A message to time: when (ns or `5ms`), from, to, payload (bytes or `1MB`), and its priority if not 0."""

AnyNetwork: TypeAlias = str | Path | NetworkSpec | LinkSpec | LinkConfig | Topology
"""A profile's name or file, a network or topology, or one link that holds between all parties."""


class Timed(NamedTuple):
    """What became of a message; times in ns, sizes in bytes, parts as in `events.Message`."""

    created: int
    src: str
    dst: str
    payload: int
    priority: int
    wire: int
    queued: int
    host: int
    stall: int
    serialise: int
    propagate: int
    delivered: int


@dataclass(frozen=True)
class Pattern:
    """An exchange pattern that was played: how long each round took (ns), and all messages as sent."""

    rounds: tuple[int, ...]
    messages: tuple[Timed, ...]

    @property
    def mean_ns(self) -> float:
        """Mean time of a round, ns."""
        return sum(self.rounds) / len(self.rounds)


def time_messages(messages: Sequence[Given], network: AnyNetwork = "lan-5g", *, seed: int = 0) -> list[Timed]:
    """Return when each message arrives and what its time is made of, in the order given.

    Messages handed over at the same time go onto a link in the order given. `seed` decides jitter and loss.
    Raises `InputError` on a party, size or time that cannot be read, naming the message's number from 0.
    """
    study = _Study(as_topology(network), seed, lambda record: None)
    for number, given in enumerate(messages):
        try:
            if not 4 <= len(given) <= 5:
                raise InputError(f"read {given!r}; accepted: time, from, to, size and, if you like, priority")
            when, src, dst, size, *priority = given
            at = parse_duration(when) if isinstance(when, str) else when
            study.send(at, src, dst, _bytes(size), *priority)
        except InputError as error:
            raise InputError(f"message {number}: {error}") from None
    return study.run()


def ping_pong(
    size: int | str,
    rounds: int,
    network: AnyNetwork = "lan-5g",
    *,
    reply: int | str = 1,
    parties: tuple[str, str] = ("server0", "server1"),
    seed: int = 0,
) -> Pattern:
    """Play `rounds` times: the first party sends `size` bytes, the second answers with `reply` bytes."""
    _check_rounds(rounds)
    first, second = parties
    sizes = (_bytes(size), _bytes(reply))
    ends = [0]

    def react(record: Message) -> None:
        if study.name(record.dst) == second:
            study.send(record.delivered, second, first, sizes[1])
            return
        ends.append(record.delivered)
        if len(ends) <= rounds:
            study.send(record.delivered, first, second, sizes[0])

    study = _Study(as_topology(network), seed, react)
    study.send(0, first, second, sizes[0])
    return _pattern(study.run(), ends)


def exchange(
    size: int | str,
    rounds: int,
    network: AnyNetwork = "lan-5g",
    *,
    parties: tuple[str, str] = ("server0", "server1"),
    seed: int = 0,
) -> Pattern:
    """Play `rounds` times: both parties send `size` bytes at once and go on when the other's have come.

    A round ends when the second of both has what it waits for.
    """
    _check_rounds(rounds)
    payload = _bytes(size)
    other = {parties[0]: parties[1], parties[1]: parties[0]}
    received = dict.fromkeys(parties, 0)
    ends = [0] * (rounds + 1)

    def react(record: Message) -> None:
        party = study.name(record.dst)
        received[party] += 1
        ends[received[party]] = max(ends[received[party]], record.delivered)
        if received[party] < rounds:
            study.send(record.delivered, party, other[party], payload)

    study = _Study(as_topology(network), seed, react)
    for party in parties:
        study.send(0, party, other[party], payload)
    return _pattern(study.run(), ends)


def as_topology(network: AnyNetwork) -> Topology:
    """Return the topology of all parties that `network` stands for."""
    if isinstance(network, Topology):
        return network
    if isinstance(network, LinkConfig):
        links = {(src, dst): network for src in PARTIES for dst in PARTIES if src != dst}
        return Topology(PARTIES, links)
    if isinstance(network, LinkSpec):
        network = NetworkSpec(defaults=network)
    if isinstance(network, str | Path):
        network = load_profile(str(network))
    return network.resolve(PARTIES)


class _Study:
    """A network on a clock of its own, whose messages come from a list or from a pattern's reactions."""

    def __init__(self, topology: Topology, seed: int, react: Callable[[Message], object]) -> None:
        self._names = Names()
        self._loop = VirtualLoop()
        self._records: dict[int, Message] = {}
        self._react = react
        self._sent = 0
        self._parties = topology.parties
        self._network = Network(self._loop, topology, self._deliver, self._observe, self._names, seed=seed)

    def name(self, party: int) -> str:
        return self._names.text(party)

    def send(self, at: int, src: str, dst: str, payload: int, priority: int = 0) -> None:
        for party in (src, dst):
            if party not in self._parties:
                raise InputError(f"unknown party {party!r}; accepted: {', '.join(self._parties)}")
        for what, value in (("time (ns)", at), ("size (bytes)", payload), ("priority", priority)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InputError(f"{what} is {value!r}; accepted: a whole number from 0, or text with a unit")
        src_id, dst_id = self._names.intern(src), self._names.intern(dst)
        id = self._sent
        self._sent += 1
        envelope = Envelope(id, Phase.ONLINE, 0, src_id, dst_id, id, None, payload, 0, priority, NO_CAUSE, at)
        self._loop.post(at, self._network.send, envelope)

    def run(self) -> list[Timed]:
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()
        return [self._timed(self._records[id]) for id in range(self._sent)]

    def _observe(self, record: Message) -> None:
        self._records[record.id] = record

    def _deliver(self, envelope: Envelope) -> None:
        self._react(self._records[envelope.id])

    def _timed(self, record: Message) -> Timed:
        return Timed(
            record.created,
            self.name(record.src),
            self.name(record.dst),
            record.payload,
            record.priority,
            record.wire,
            record.queued,
            record.host,
            record.stall,
            record.serialise,
            record.propagate,
            record.delivered,
        )


def _check_rounds(rounds: int) -> None:
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; accepted: 1 or more")


def _bytes(size: int | str) -> int:
    return parse_size(size) if isinstance(size, str) else size


def _pattern(messages: list[Timed], ends: list[int]) -> Pattern:
    rounds = tuple(after - before for before, after in pairwise(ends))
    return Pattern(rounds, tuple(messages))
