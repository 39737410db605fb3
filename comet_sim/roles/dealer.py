"""The dealer of correlated randomness: seeds in the set-up phase, corrections in the offline phase."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from comet_sim.actors import Party, Strand
from comet_sim.mpc.dealing import DealingSession, Desk, bundle_tag
from comet_sim.mpc.prg import SEED_BYTES, Prg
from comet_sim.mpc.session import Bundle, Stock
from comet_sim.mpc.tensor import Blank, Ops

__all__ = ["deal_offline", "send_seeds", "stock_up"]

DEALER_SEED = "dealer-seed"


async def send_seeds(strand: Strand, servers: tuple[Party, Party], exact: bool) -> None:
    """Give each server its own 16-byte seed."""
    with strand.scope("seeds"):
        for server in servers:
            seed = strand.party.vault[f"seed/{server.name}"] if exact else Blank(SEED_BYTES)
            strand.send(server, DEALER_SEED, seed)


async def deal_offline(
    party: Party,
    servers: tuple[Party, Party],
    bits: int,
    exact: bool,
    program: Callable[[DealingSession], Coroutine[Any, Any, Any]],
) -> None:
    """Walk through the servers' program and send server 1 all corrections it will use."""
    prgs = None
    if exact:
        prgs = (Prg(party.vault["seed/server0"]), Prg(party.vault["seed/server1"]))
    desk = Desk(servers[1], prgs)
    session = DealingSession(party, desk, bits)
    await program(session)
    desk.flush(session, last=True)


async def stock_up(strand: Strand, dealer: Party, stock: Stock, ops: Ops) -> None:
    """Receive corrections until the dealer's last bundle: server 1's part of the offline phase."""
    number = 0
    while True:
        bundle: Bundle = await strand.receive(dealer, bundle_tag(number))
        stock.add(bundle, ops)
        if bundle.last:
            return
        number += 1
