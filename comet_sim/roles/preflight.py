"""What a run will ask of the dealer, found before it starts: the dealer's walk without dealing."""

from __future__ import annotations

from dataclasses import replace

from comet_sim.actors import Party, World
from comet_sim.events import Compute, DealerRequest, Message, Names, Reveal
from comet_sim.kernel import VirtualLoop
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import Layout, PrivateDecoder
from comet_sim.models.devices import DEVICES
from comet_sim.models.tensors import shapes
from comet_sim.mpc.correlated import Kind
from comet_sim.mpc.correlated import Layout as Form
from comet_sim.mpc.dealing import DealingSession, Desk
from comet_sim.mpc.suite import Suite
from comet_sim.mpc.supply import Position
from comet_sim.mpc.tensor import ShapeTensor
from comet_sim.roles.plan import Plan
from comet_sim.roles.server import serve

__all__ = ["largest_piece"]


class _Silent:
    """Observes nothing: a walk leaves no records."""

    def message(self, record: Message) -> None:
        """Ignore."""

    def compute(self, record: Compute) -> None:
        """Ignore."""

    def reveal(self, record: Reveal) -> None:
        """Ignore."""

    def dealer_request(self, record: DealerRequest) -> None:
        """Ignore."""


class _Largest(Desk):
    """Remembers the largest piece, and sends nothing."""

    def __init__(self, receiver: Party) -> None:
        super().__init__(receiver, None)
        self.elements = 0
        self.op = ""

    def deal(self, strand: DealingSession, kind: Kind, form: Form, position: Position) -> None:
        """Compare the piece with the largest so far."""
        if form.corrected_words > self.elements:
            self.elements = form.corrected_words
            self.op = strand.world.names.text(strand.path)


def largest_piece(config: ModelConfig, plan: Plan, suite: Suite, layout: Layout) -> tuple[int, str]:
    """Return the correction elements of the largest piece of correlated randomness of a run, and its op path.

    Walks every pass over one layer: all layers have the same shapes.
    """
    one = replace(config, layers=1)
    weights = {name: ShapeTensor(shape) for name, shape in shapes(one).items()}
    loop = VirtualLoop()
    try:
        world = World(loop, Names(), _Silent())
        user, dealer, server1 = (
            Party(world, name, DEVICES["none"]) for name in ("user", "dealer", "server1")
        )
        desk = _Largest(server1)
        session = DealingSession(dealer, desk, plan.fraction_bits)
        session.transcripts = {}
        session.truncation = plan.truncation
        walk = serve(session, PrivateDecoder(one, weights, {}, suite, layout), plan, user, None)
        try:
            walk.send(None)
        except StopIteration:
            return desk.elements, desk.op
        walk.close()
        raise RuntimeError("the dealer's walk waits for somebody")
    finally:
        loop.close()
