"""Run one two-party protocol between two servers and a dealer, and look at everything it did.

Real loop, links, parties and dealer: what costs nothing here costs nothing in a simulation. The dealer's
seeds are handed out directly, so a run has an offline and an online phase and no set-up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comet_sim.actors import DeviceProfile, Party, Strand, World
from comet_sim.events import Compute, DealerRequest, Message, Names, Phase, Reveal
from comet_sim.kernel import VirtualLoop, generator, stream_key
from comet_sim.kernel import run as run_virtual
from comet_sim.models.devices import DEVICES
from comet_sim.mpc import ring
from comet_sim.mpc.dealing import DealingSession
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Auditor, Session
from comet_sim.mpc.settings import Truncation
from comet_sim.mpc.supply import Bundle, OnDemand, Stock, Streamed
from comet_sim.mpc.tensor import ExactOps, Ops, ShapeOps, ShapeTensor
from comet_sim.network import Envelope, LinkConfig, Network, Topology
from comet_sim.roles.dealer import Dealing, deal_ahead, deal_on_demand, make_supply, stock_up
from comet_sim.roles.plan import SERVERS
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace

__all__ = ["Bits", "Integers", "ProtocolRun", "Public", "default_topology", "run_protocol"]

Program = Callable[..., Coroutine[Any, Any, Any]]
_PARTIES = (*SERVERS, "dealer")
_AHEAD = Dealing()


@dataclass(frozen=True)
class Integers:
    """An input shared additively as ring integers, not as fixed-point numbers."""

    values: ArrayLike


@dataclass(frozen=True)
class Bits:
    """An input of 64-bit words shared by XOR."""

    values: ArrayLike


@dataclass(frozen=True)
class Public:
    """An argument handed to both servers and the dealer as it is."""

    value: Any


@dataclass
class ProtocolRun:
    """What happened: records in order, the outputs of both servers, and what each server received.

    `views` holds the buffers a server received, the dealer's corrections included, in order; a shape run's are
    blank. `unused` counts correction elements dealt and never used, `stock_peak` the most server 1 held at once.

    `raw` is the reconstructed output (int64, additive), `xor` the same for XOR shares, `values` decoded to
    floats; lists when the protocol returns a tuple. Shape runs have none of them.
    """

    names: Names = field(default_factory=Names)
    messages: list[Message] = field(default_factory=list)
    computes: list[Compute] = field(default_factory=list)
    reveals: list[Reveal] = field(default_factory=list)
    requests: list[DealerRequest] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=lambda: [None, None])
    views: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in SERVERS})
    auditor: Auditor | None = None
    bits: int = 16
    online_ns: int = 0
    unused: int = 0
    stock_peak: int = 0

    def message(self, record: Message) -> None:
        """Observe a message."""
        self.messages.append(record)

    def compute(self, record: Compute) -> None:
        """Observe local work."""
        self.computes.append(record)

    def reveal(self, record: Reveal) -> None:
        """Observe an opened value."""
        self.reveals.append(record)

    def dealer_request(self, record: DealerRequest) -> None:
        """Observe dealt randomness."""
        self.requests.append(record)

    @property
    def online(self) -> list[Message]:
        """Messages of the online phase."""
        return [message for message in self.messages if message.phase == Phase.ONLINE]

    @cached_property
    def trace(self) -> Trace:
        """The records as a trace, for `comet_sim.trace` and the asserts."""
        recorder = Recorder(self.names, None)
        for message in self.messages:
            recorder.message(message)
        for span in self.computes:
            recorder.compute(span)
        for reveal in self.reveals:
            recorder.reveal(reveal)
        for request in self.requests:
            recorder.dealer_request(request)
        return Trace.of(recorder)

    def sent(self, server: str) -> int:
        """Return the payload bytes a server sends to the other one online."""
        text = self.names.text
        return sum(
            message.payload
            for message in self.online
            if text(message.src) == server and text(message.dst) in SERVERS
        )

    @property
    def bytes(self) -> int:
        """Payload bytes server 0 sends online; raises AssertionError when server 1 does not send as many."""
        sent = {name: self.sent(name) for name in SERVERS}
        if sent["server0"] != sent["server1"]:
            raise AssertionError(f"the servers sent different amounts: {sent}")
        return sent["server0"]

    @property
    def rounds(self) -> int:
        """Rounds: the deepest message of the online phase."""
        return max((message.depth for message in self.online), default=0)

    @property
    def corrections(self) -> int:
        """Correction elements the dealer sent, 8 bytes each."""
        return sum(request.correction for request in self.requests)

    def _reconstruct(self, combine: Callable[[Any, Any], Any]) -> Any:
        first, second = self.outputs
        if isinstance(first, tuple):
            return [combine(a, b) for a, b in zip(first, second, strict=True)]
        return combine(first, second)

    @property
    def raw(self) -> Any:
        """Reconstructed output as ring integers."""
        return self._reconstruct(lambda a, b: a + b)

    @property
    def xor(self) -> Any:
        """Reconstructed output of XOR shares."""
        return self._reconstruct(lambda a, b: a ^ b)

    @property
    def values(self) -> Any:
        """Reconstructed output decoded from fixed point."""
        return self._reconstruct(lambda a, b: ring.decode(a + b, self.bits))

    def records(self) -> list[tuple[Any, ...]]:
        """Return every record with its names as text: equal lists mean equal runs."""
        text = self.names.text
        rows: list[tuple[Any, ...]] = [
            (message._replace(path=0, src=0, dst=0), *map(text, (message.path, message.src, message.dst)))
            for message in self.messages
        ]
        rows += [
            (span._replace(path=0, party=0), text(span.path), text(span.party)) for span in self.computes
        ]
        rows += [(ask._replace(path=0, kind=0), text(ask.path), text(ask.kind)) for ask in self.requests]
        rows += [
            (each._replace(path=0, audience=0, what=0, why=0), text(each.path), text(each.audience))
            for each in self.reveals
        ]
        return rows


def _plain(item: Any, bits: int) -> NDArray[np.int64]:
    if isinstance(item, Integers | Bits):
        return np.asarray(item.values, np.int64)
    return ring.encode(np.asarray(item, np.float64), bits)


def _arguments(inputs: tuple[Any, ...], index: int, exact: bool, bits: int, seed: int) -> list[Any]:
    """Return server `index`'s share of every input (the dealer, 2, gets shapes)."""
    arguments: list[Any] = []
    for number, item in enumerate(inputs):
        if isinstance(item, Public):
            arguments.append(item.value)
            continue
        plain = _plain(item, bits)
        if not exact or index == 2:
            arguments.append(ShapeTensor(plain.shape))
            continue
        mask = generator(seed, "input", number).integers(-(2**63), 2**63, plain.shape, np.int64)
        if index == 0:
            arguments.append(mask)
        else:
            arguments.append(plain ^ mask if isinstance(item, Bits) else plain - mask)
    return arguments


def default_topology() -> Topology:
    """Return three parties, every pair linked at 1 Gbit/s and 100 us one way."""
    link = LinkConfig(rate=1_000_000_000, delay=100_000)
    return Topology(_PARTIES, {(a, b): link for a in _PARTIES for b in _PARTIES if a != b})


def run_protocol(
    program: Program,
    *inputs: Any,
    exact: bool = True,
    bits: int = 16,
    seed: int = 0,
    topology: Topology | None = None,
    device: DeviceProfile = DEVICES["cpu"],
    replay: bool = True,
    audit: bool = False,
    dealing: Dealing = _AHEAD,
    truncation: Truncation = "local",
) -> ProtocolRun:
    """Run `program(session, *shares)` at both servers after the dealer has dealt for it.

    `program` is a coroutine function over a `Session` and one share an input; it returns a share or a tuple
    of shares, or None. Inputs are arrays of numbers (shared in fixed point with `bits` fractional bits),
    `Integers`, `Bits` or `Public`. With `exact=False` only shapes run; `replay=False` then walks every
    protocol in full. `seed` decides all randomness, `topology` names `server0`, `server1` and `dealer`.
    `dealing` says when corrections are dealt, `truncation` how products are rescaled. Raises what the program
    raises, in an ExceptionGroup, and DeadlockError when the servers wait for each other forever.
    """
    run = ProtocolRun(bits=bits, auditor=Auditor() if audit and exact else None)
    loop = VirtualLoop()
    world = World(loop, run.names, run)
    parties = {name: Party(world, name, device) for name in _PARTIES}
    servers = (parties["server0"], parties["server1"])

    def deliver(envelope: Envelope) -> None:
        name = run.names.text(envelope.dst)
        if name in run.views:
            payload = envelope.payload
            run.views[name].append(payload.buffer if isinstance(payload, Bundle) else payload)
        world.deliver(envelope)

    world.network = Network(loop, topology or default_topology(), deliver, run.message, run.names)
    ops: Ops = ExactOps() if exact else ShapeOps()
    supply = make_supply(dealing, ops, parties["dealer"])
    transcripts: dict[Any, Any] | None = {} if replay and not exact and supply.immediate else None

    async def dealer(bound: int | None = None) -> None:
        vault = parties["dealer"].vault
        for name in SERVERS:
            vault[f"seed/{name}"] = stream_key(seed, "dealer", name)

        async def walk(session: DealingSession) -> None:
            session.transcripts = transcripts
            session.truncation = truncation
            await program(session, *_arguments(inputs, 2, exact, bits, seed))

        if isinstance(supply, OnDemand):
            await deal_on_demand(parties["dealer"], servers[1], exact)
        else:
            await deal_ahead(parties["dealer"], servers, bits, exact, walk, bound)

    async def serve(index: int) -> None:
        session = Session(
            servers[index], servers[1 - index], index, ops, bits, supply if index else None, run.auditor
        )
        session.transcripts = transcripts
        session.truncation = truncation
        if exact:
            session.seed = Prg(stream_key(seed, "dealer", SERVERS[index]))
            session.private = Prg(stream_key(seed, "private", SERVERS[index]))
        run.outputs[index] = await program(session, *_arguments(inputs, index, exact, bits, seed))
        await session.settle()
        if index and isinstance(supply, OnDemand):
            supply.finish(session)

    async def play() -> None:
        world.phase = Phase.OFFLINE
        if isinstance(supply, Stock):
            async with asyncio.TaskGroup() as group:
                parties["dealer"].start(group, dealer())
                servers[1].start(group, stock_up(Strand(servers[1]), parties["dealer"], supply))
        start = loop.now_ns
        world.phase = Phase.ONLINE
        async with asyncio.TaskGroup() as group:
            if not isinstance(supply, Stock):
                parties["dealer"].start(group, dealer(dealing.stock))
            if isinstance(supply, Streamed):
                servers[1].start(group, supply.fill(Strand(servers[1])))
            for index in range(2):
                servers[index].start(group, serve(index))
        run.online_ns = loop.now_ns - start

    run_virtual(play(), loop_factory=lambda: loop)
    run.unused = supply.elements
    run.stock_peak = supply.peak_elements
    return run
