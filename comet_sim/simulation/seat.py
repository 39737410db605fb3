"""A server's seat in a run: its session and its view of the model, which last from preparation to the last token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from comet_sim.actors import Party
from comet_sim.comet.decoder import CometDecoder
from comet_sim.kernel import stream_key
from comet_sim.models.decoder import PrivateDecoder
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session
from comet_sim.mpc.supply import Supply
from comet_sim.roles.plan import Plan
from comet_sim.roles.server import serve

__all__ = ["Seat"]


class Seat:
    """One server's session and model; `take` must be called in the party's own task, as it opens its vault."""

    def __init__(
        self,
        session: Session,
        seed: int,
        build: Callable[[Mapping[str, Any]], PrivateDecoder],
    ) -> None:
        self.session = session
        self.model: PrivateDecoder | None = None
        self._seed = seed
        self._build = build
        self._user_prg: Prg | None = None

    def take(self, supply: Supply | None) -> PrivateDecoder:
        """Sit down: read seeds and weights from the vault, once; `supply` gives corrections from now on."""
        session = self.session
        session.supply = supply
        if self.model is not None:
            return self.model
        vault = session.party.vault
        if session.ops.exact:
            session.seed = Prg(vault["seed/dealer"])
            session.private = Prg(stream_key(self._seed, session.party.name, "private"))
            self._user_prg = Prg(vault["seed/user"]) if session.index == 0 else None
        self.model = self._build(vault["weights"])
        return self.model

    async def prepare(self, supply: Supply | None) -> None:
        """Do what Comet's servers do before the user is served."""
        model = self.take(supply)
        if isinstance(model, CometDecoder):
            await model.prepare(self.session.fork())

    async def serve(self, supply: Supply | None, plan: Plan, user: Party) -> None:
        """Answer the user."""
        await serve(self.session, self.take(supply), plan, user, self._user_prg)
