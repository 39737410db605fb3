"""The dealer of correlated randomness: seeds in the set-up phase, then corrections in one of three modes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal

from comet_sim.actors import Party, Strand
from comet_sim.mpc.dealing import DealingSession, Desk, deal_one, record_dealt
from comet_sim.mpc.prg import SEED_BYTES, Prg
from comet_sim.mpc.supply import (
    Bundle,
    OnDemand,
    Stock,
    Streamed,
    bundle_tag,
    correction_tag,
    decode_request,
    request_tag,
)
from comet_sim.mpc.tensor import WORD_BYTES, Blank, Ops
from comet_sim.roles.plan import SERVERS

__all__ = ["DEALER_SEED", "Dealing", "deal_ahead", "deal_on_demand", "make_supply", "send_seeds", "stock_up"]

DEALER_SEED = "dealer-seed"


@dataclass(frozen=True, slots=True)
class Dealing:
    """When corrections are dealt; `stock` bounds, in elements, how far a streaming dealer runs ahead."""

    mode: Literal["offline", "on-demand", "streamed"] = "offline"
    stock: int = 1 << 21


def make_supply(dealing: Dealing, ops: Ops, dealer: Party) -> Stock | OnDemand | Streamed:
    """Return server 1's way to corrections in a mode."""
    if dealing.mode == "on-demand":
        return OnDemand(ops, dealer)
    return Streamed(ops, dealer) if dealing.mode == "streamed" else Stock(ops)


async def send_seeds(strand: Strand, servers: tuple[Party, Party], exact: bool) -> None:
    """Give each server its own 16-byte seed."""
    with strand.scope("seeds"):
        for server in servers:
            seed = strand.party.vault[f"seed/{server.name}"] if exact else Blank(SEED_BYTES)
            strand.send(server, DEALER_SEED, seed)


def _prgs(party: Party, exact: bool) -> tuple[Prg, Prg] | None:
    if not exact:
        return None
    first, second = (Prg(party.vault[f"seed/{name}"]) for name in SERVERS)
    return first, second


async def deal_ahead(
    party: Party,
    servers: tuple[Party, Party],
    bits: int,
    exact: bool,
    program: Callable[[DealingSession], Coroutine[Any, Any, Any]],
    bound: int | None = None,
) -> None:
    """Walk through the servers' program and send server 1 all corrections it will use.

    Without `bound` as fast as the dealer can (offline); with it, at most so many elements ahead (streamed).
    """
    desk = Desk(servers[1], _prgs(party, exact), bound=bound)
    session = DealingSession(party, desk, bits)
    await program(session)
    desk.flush(session, last=True)


async def deal_on_demand(party: Party, server1: Party, exact: bool) -> None:
    """Answer server 1's requests one after the other until it sends an empty one."""
    prgs = _prgs(party, exact)
    strand = Strand(party)
    number = 0
    while True:
        request = await strand.receive_envelope(server1, request_tag(number))
        if not len(request.payload):
            return
        position, kind, form = decode_request(request.payload)
        strand.path = request.path
        made = deal_one(strand, prgs, position, kind, form)
        buffer: Any = (
            Blank(WORD_BYTES * form.corrected_words)
            if made is None
            else made.astype("<i8", copy=False).tobytes()
        )
        id, time = strand.send(server1, correction_tag(position), buffer, counted=False)
        record_dealt(strand, request.path, kind, form, time, id)
        number += 1


async def stock_up(strand: Strand, dealer: Party, stock: Stock) -> None:
    """Receive corrections until the dealer's last bundle: server 1's part of the offline phase."""
    number = 0
    while True:
        bundle: Bundle = await strand.receive(dealer, bundle_tag(number))
        stock.add(bundle)
        if bundle.last:
            return
        number += 1
