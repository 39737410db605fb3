"""The composition root: builds one run's clock, network and parties, and plays its three phases."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from comet_sim.actors import DeviceProfile, Party, Strand, World
from comet_sim.comet.decoder import CometDecoder, extra_shapes
from comet_sim.comet.indexing import Part
from comet_sim.comet.masks import AllActive, Given, MaskSource, Opened, Opener, SecretOrders
from comet_sim.comet.privacy import IdealNoise
from comet_sim.comet.record import SparsityRecord
from comet_sim.comet.settings import CometSettings
from comet_sim.errors import ungrouped
from comet_sim.events import Names, Observer, Phase
from comet_sim.kernel import VirtualLoop, stream_key
from comet_sim.kernel import run as run_virtual
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import Layout, PrivateDecoder
from comet_sim.models.tensors import shapes as weight_shapes
from comet_sim.mpc import ring
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.rounds import Transcript
from comet_sim.mpc.session import Auditor, Session
from comet_sim.mpc.suite import Suite
from comet_sim.mpc.supply import OnDemand, Stock, Streamed
from comet_sim.mpc.tensor import ExactOps, Ops, ShapeOps, ShapeTensor
from comet_sim.network import Network, Topology
from comet_sim.roles import dealer, owner, server, user
from comet_sim.roles.plan import SERVERS, Plan
from comet_sim.simulation.scene import Scene, Spectator
from comet_sim.simulation.seat import Seat

__all__ = ["PARTIES", "PHASES", "Inference", "Outcome", "Progress", "TokenIds", "play"]

PARTIES = ("user", "server0", "server1", "dealer", "owner")
PHASES = {phase: phase.label for phase in Phase}

TokenIds = list[int] | list[list[int]]


class Progress(Protocol):
    """Called while a run goes on."""

    def __call__(self, stage: str, done: int, total: int, virtual_ns: int) -> None:
        """Take the phase, how many of its steps are done, and the virtual clock."""


@dataclass(frozen=True)
class Inference:
    """All that decides one run; a shape run has no `weights` (floats by canonical name) and no `prompt` ids.

    `prompt` holds the ids of all sequences of the batch, one after the other.
    """

    config: ModelConfig
    plan: Plan
    suite: Suite
    topology: Topology
    device: DeviceProfile
    seed: int
    layout: Layout = field(default_factory=Layout)
    exponents: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, NDArray[np.floating]] | None = None
    prompt: Sequence[int] = ()
    audit: bool = True
    devices: Mapping[str, DeviceProfile] = field(default_factory=dict)
    """Devices of parties that have another than `device`."""
    dealing: dealer.Dealing = field(default_factory=dealer.Dealing)
    comet: CometSettings | None = None
    """Run under Comet; None: dense."""
    masks: MaskSource | None = None
    """Given masks, which a shape run and an oracle need; None: a trained predictor's bits are opened."""

    @property
    def forms(self) -> dict[str, tuple[int, ...]]:
        """Shapes of everything the owner shares."""
        found = weight_shapes(self.config)
        return found if self.comet is None else found | extra_shapes(self.config, self.comet)

    @property
    def exact(self) -> bool:
        """Whether values are computed, not only shapes."""
        return self.weights is not None


@dataclass
class Outcome:
    """What a run left besides its trace."""

    sequences: list[list[int]]
    """Token ids of each sequence; empty in shape runs."""
    token_times: list[int]
    """Virtual time at which the user knew each token (of all sequences), ns."""
    phase_ends: dict[Phase, int]
    auditor: Auditor | None
    stock_peak: int
    """Most correction elements server 1 held at once."""
    stock_left: int
    """Correction elements dealt and never used: the run stopped early."""
    sparsity: SparsityRecord | None = None
    """Under Comet, what was opened and worked on, as server 0 saw it."""
    opened: list[tuple[Part, int, NDArray[np.bool_]]] = field(default_factory=list)
    """The masks that were opened, by part and layer, in the model's own order: what no party knows."""

    @property
    def token_ids(self) -> TokenIds:
        """Token ids: of a single sequence a list, of several a list of lists."""
        return self.sequences if len(self.sequences) > 1 else [id for ids in self.sequences for id in ids]


class _Stage:
    """One run being played."""

    def __init__(self, run: Inference, names: Names, observer: Observer, progress: Progress | None) -> None:
        self.run = run
        self.progress = progress
        self.loop = VirtualLoop()
        self.world = world = World(self.loop, names, observer)
        self.parties = {name: Party(world, name, run.devices.get(name, run.device)) for name in PARTIES}
        self.servers = (self.parties[SERVERS[0]], self.parties[SERVERS[1]])
        world.network = Network(
            self.loop, run.topology, world.deliver, observer.message, names, seed=run.seed
        )
        self.ops: Ops = ExactOps() if run.exact else ShapeOps()
        self.auditor = Auditor() if run.exact and run.audit else None
        self.supply = dealer.make_supply(run.dealing, self.ops, self.parties["dealer"])
        # Replays say neither when a correction is asked for nor when it is needed.
        immediate = not run.exact and self.supply.immediate
        self.transcripts: dict[Any, Transcript] | None = {} if immediate else None
        self.ids: list[list[int]] = [[] for _ in range(run.plan.batch)]
        self.times: list[int] = []
        self.ends: dict[Phase, int] = {}
        self.record = SparsityRecord()
        self.opener = self._opener()
        self.seats = [self._seat(index) for index in range(len(SERVERS))]
        self.main: asyncio.Task[Any] | None = None

    def _seat(self, index: int) -> Seat:
        run = self.run
        session = Session(
            self.servers[index],
            self.servers[1 - index],
            index,
            self.ops,
            run.plan.fraction_bits,
            None,
            self.auditor,
        )
        session.transcripts = self.transcripts
        session.truncation = run.plan.truncation
        return Seat(session, run.seed, lambda weights: self._model(weights, self.opener, index))

    def _opener(self) -> Opener:
        run = self.run
        if run.masks is None:
            return Opened()
        orders, noise = self._order_prgs(), None
        if run.comet is not None and run.comet.privacy is not None:
            first, second = (Prg(stream_key(run.seed, name, "private")) for name in SERVERS)
            noise = IdealNoise(run.comet.privacy, orders, (first, second))
        return Given(run.config, run.masks, orders, noise)

    def _order_prgs(self) -> tuple[Prg, Prg]:
        """The streams secret orders come from: for what is outside the protocol."""
        first, second = (Prg(stream_key(self.run.seed, "dealer", "seed", name)) for name in SERVERS)
        return first, second

    def opened(self) -> list[tuple[Part, int, NDArray[np.bool_]]]:
        """Return the masks that were opened, put back into the model's own order."""
        orders = SecretOrders(self.run.config, self._order_prgs())
        return [(call.part, call.layer, orders.show(mask, call)) for call, mask in self.record.masks]

    def _model(self, weights: Mapping[str, Any], opener: Opener, index: int | None) -> PrivateDecoder:
        run = self.run
        if run.comet is None:
            return PrivateDecoder(run.config, weights, run.exponents, run.suite, run.layout)
        model = CometDecoder(run.config, weights, run.exponents, run.suite, run.layout, run.comet, opener)
        model.passes = run.plan.output_tokens
        if index == 0:
            model.record = self.record
        return model

    def report(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(PHASES[self.world.phase], done, total, self.loop.now_ns)

    def scene(self) -> Scene:
        """Return what a spectator may look at."""
        run, world = self.run, self.world
        return Scene(
            names=world.names,
            config=run.config,
            parties=PARTIES,
            links=world.network.links,
            now=lambda: self.loop.now_ns,
            phase=lambda: world.phase,
            sequences=self.ids,
            token_times=self.times,
            record=self.record if run.comet is not None else None,
            stock=lambda: self.supply.elements,
            stopping=lambda: self.main is not None and self.main.cancelling() > 0,
        )

    async def play(self) -> None:
        self.main = asyncio.current_task()
        phases = {Phase.SETUP: self.set_up, Phase.OFFLINE: self.offline, Phase.ONLINE: self.online}
        for phase, programs in phases.items():
            self.world.phase = phase
            total = self.run.plan.output_tokens if phase is Phase.ONLINE else 1
            self.report(0, total)
            async with asyncio.TaskGroup() as group:
                for name, program in programs():
                    self.parties[name].start(group, program)
            self.ends[phase] = self.loop.now_ns
            self.report(total, total)

    # -- programs of each phase, by party ---------------------------------------------------------------

    def set_up(self) -> Iterator[tuple[str, Coroutine[Any, Any, Any]]]:
        run = self.run
        forms = run.forms
        others = (self.parties["owner"], self.parties["dealer"], self.parties["user"])
        yield "owner", self._owner(forms)
        yield "dealer", self._dealer_seeds()
        yield "user", self._user_seed()
        for index, name in enumerate(SERVERS):
            strand = Strand(self.parties[name])
            yield name, server.receive_model(strand, index, *others, self.ops, forms)

    def offline(self) -> Iterator[tuple[str, Coroutine[Any, Any, Any]]]:
        prepares = self.run.comet is not None
        if not prepares and not isinstance(self.supply, Stock):
            return
        # What the servers prepare offline is dealt offline in every mode: a stock of its own serves it.
        stock = self.supply if isinstance(self.supply, Stock) else Stock(self.ops)
        yield "dealer", self._deal_ahead(None, prepare=prepares, serve=stock is self.supply)
        if prepares:
            yield SERVERS[0], self.seats[0].prepare(None)
        yield SERVERS[1], self._stock_up(stock, prepares)

    async def _stock_up(self, stock: Stock, prepares: bool) -> None:
        await dealer.stock_up(Strand(self.servers[1]), self.parties["dealer"], stock)
        if prepares:
            await self.seats[1].prepare(stock)

    def _deal_ahead(
        self, bound: int | None, *, prepare: bool = False, serve: bool = True
    ) -> Coroutine[Any, Any, None]:
        run = self.run
        weights = {name: ShapeTensor(shape) for name, shape in run.forms.items()}
        model = self._model(weights, AllActive(), None)

        async def walk(session: Session) -> None:
            session.transcripts = self.transcripts
            session.truncation = run.plan.truncation
            if isinstance(model, CometDecoder):
                child = session.fork()
                await (model.prepare(child) if prepare else model.skip_preparation())
            if serve:
                await server.serve(session, model, run.plan, self.parties["user"], None)

        bits = run.plan.fraction_bits
        return dealer.deal_ahead(self.parties["dealer"], self.servers, bits, run.exact, walk, bound)

    def online(self) -> Iterator[tuple[str, Coroutine[Any, Any, Any]]]:
        if isinstance(self.supply, Streamed):
            yield "dealer", self._deal_ahead(self.run.dealing.stock)
            yield SERVERS[1], self.supply.fill(Strand(self.servers[1]))
        elif isinstance(self.supply, OnDemand):
            yield "dealer", dealer.deal_on_demand(self.parties["dealer"], self.servers[1], self.run.exact)
        yield "user", self._user()
        for index, name in enumerate(SERVERS):
            yield name, self._serve(index)

    async def _owner(self, forms: Mapping[str, tuple[int, ...]]) -> None:
        run = self.run
        vault = self.parties["owner"].vault
        weights: dict[str, Any]
        if run.weights is None:
            weights = {name: ShapeTensor(shape) for name, shape in forms.items()}
        else:
            vault["seed"] = stream_key(run.seed, "owner", "seed")
            bits = run.plan.fraction_bits
            weights = {name: ring.encode(np.asarray(run.weights[name], np.float64), bits) for name in forms}
        await owner.share_weights(
            Strand(self.parties["owner"]), self.servers, self.ops, weights, run.exponents
        )

    async def _dealer_seeds(self) -> None:
        party = self.parties["dealer"]
        for name in SERVERS:
            party.vault[f"seed/{name}"] = stream_key(self.run.seed, "dealer", "seed", name)
        await dealer.send_seeds(Strand(party), self.servers, self.run.exact)

    async def _user_seed(self) -> None:
        party = self.parties["user"]
        party.vault["seed"] = stream_key(self.run.seed, "user", "seed")
        party.vault["prompt"] = list(self.run.prompt)
        await user.send_seed(Strand(party), self.servers[0], self.run.exact)

    async def _user(self) -> None:
        party = self.parties["user"]

        def on_tokens(time: int, tokens: list[int] | None) -> None:
            self.times.append(time)
            for ids, token in zip(self.ids, tokens or (), strict=tokens is not None):
                ids.append(token)
            self.report(len(self.times), self.run.plan.output_tokens)

        prompt = party.vault["prompt"]
        await user.ask(Strand(party), self.servers, self.run.plan, self.ops, prompt, on_tokens)

    async def _serve(self, index: int) -> None:
        supply = self.supply if index else None
        seat = self.seats[index]
        await seat.serve(supply, self.run.plan, self.parties["user"])
        if isinstance(supply, OnDemand):
            supply.finish(seat.session)


@contextmanager
def _frozen_garbage() -> Iterator[None]:
    """Keep the collector from walking what was there before: a long run allocates millions of records."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def play(
    run: Inference,
    names: Names,
    observer: Observer,
    progress: Progress | None = None,
    spectator: Spectator | None = None,
) -> Outcome:
    """Play set-up, offline and online phase; the observer has seen every record when this returns.

    Works inside a running event loop too: virtual time has a loop of its own. An error in a party's task
    is raised as itself.
    """
    stage = _Stage(run, names, observer, progress)
    if spectator is not None:
        spectator.attend(stage.scene())
    with ungrouped(), _frozen_garbage():
        run_virtual(stage.play(), loop_factory=lambda: stage.loop)
    return Outcome(
        stage.ids if run.exact else [],
        stage.times,
        stage.ends,
        stage.auditor,
        stage.supply.peak_elements,
        stage.supply.elements,
        stage.record if run.comet is not None else None,
        stage.opened(),
    )
