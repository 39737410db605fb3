"""The user: sends its prompt as shares of one-hot rows, receives logit shares, picks tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from comet_sim.actors import Party, Strand
from comet_sim.mpc.prg import SEED_BYTES, Prg
from comet_sim.mpc.tensor import Blank, Ops, ShapeTensor
from comet_sim.roles.plan import Plan

__all__ = [
    "INPUT_SEED",
    "ask",
    "go_tag",
    "input_position",
    "input_tag",
    "logits_tag",
    "send_seed",
    "token_tag",
]

INPUT_SEED = "input-seed"


def input_tag(token: int) -> str:
    """Return the tag of the share of the rows that lead to output token `token`."""
    return f"token{token}/input"


def go_tag(token: int) -> str:
    """Return the tag of the byte that says whether the user goes on."""
    return f"token{token}/go"


def logits_tag(token: int) -> str:
    """Return the tag of a server's share of the logits."""
    return f"token{token}/logits"


def token_tag(token: int) -> str:
    """Return the tag of a token the servers picked."""
    return f"token{token}/token"


def input_position(token: int) -> bytes:
    """Return the PRG position of the mask of the input rows."""
    return f"input/{token}".encode()


async def send_seed(strand: Strand, server0: Party, exact: bool) -> None:
    """Give server 0 the seed its input shares come from, 16 bytes, once."""
    with strand.scope("seeds"):
        strand.send(server0, INPUT_SEED, strand.party.vault["seed"] if exact else Blank(SEED_BYTES))


async def ask(
    strand: Strand,
    servers: tuple[Party, Party],
    plan: Plan,
    ops: Ops,
    prompt: Sequence[int],
    on_tokens: Callable[[int, list[int] | None], None],
) -> None:
    """Hold the conversation: `on_tokens(time_ns, token_ids)` is called as the next token of each sequence is known.

    `prompt` holds the ids of all sequences, one after the other; token ids are None in shape runs. Each input costs
    8 bytes an element to server 1, and a byte to each server that says whether to go on where `plan.stop_at_eos`.
    """
    prg = Prg(strand.party.vault["seed"]) if ops.exact else None
    loop = strand.world.loop
    ids: Sequence[int] = prompt
    for token in range(plan.output_tokens):
        with strand.scope(f"token{token}"):
            if not token or plan.reveal == "user":
                if token and plan.stop_at_eos:
                    stop = ids[0] == plan.eos_id
                    _say(strand, servers, token, ops, go=not stop)
                    if stop:
                        return
                _send_input(strand, servers[1], plan, ops, prg, token, ids)
            chosen = await _next_tokens(strand, servers, plan, ops, token)
            await strand.settle()
        on_tokens(loop.now_ns, chosen)
        if chosen is not None:
            ids = chosen
            if plan.stop_at_eos and plan.reveal == "servers" and chosen == [plan.eos_id]:
                return


def _say(strand: Strand, servers: tuple[Party, Party], token: int, ops: Ops, *, go: bool) -> None:
    """Tell both servers whether another token is wanted: one byte each."""
    for server in servers:
        strand.send(server, go_tag(token), (b"\1" if go else b"\0") if ops.exact else Blank(1))


def _send_input(
    strand: Strand,
    server1: Party,
    plan: Plan,
    ops: Ops,
    prg: Prg | None,
    token: int,
    ids: Sequence[int],
) -> None:
    """Send server 1 the one-hot rows minus the seed's stream: 8 bytes an element."""
    rows = plan.rows(token)
    share: Any = ShapeTensor((rows, plan.vocab))
    if prg is not None:
        onehot = np.zeros((rows, plan.vocab), np.int64)
        onehot[np.arange(rows), np.asarray(ids)] = 1
        share = onehot - prg.words(input_position(token), onehot.size).reshape(onehot.shape)
    with strand.scope("input"):
        strand.charge(0, 16 * share.size)
        strand.send(server1, input_tag(token), ops.pack((share,)))


async def _next_tokens(
    strand: Strand, servers: tuple[Party, Party], plan: Plan, ops: Ops, token: int
) -> list[int] | None:
    """Return each sequence's next token: the largest of its opened logits, or what the servers say."""
    with strand.scope("reveal"):
        if plan.reveal == "servers":
            buffer = await strand.receive(servers[0], token_tag(token))
            (words,) = ops.unpack(buffer, (ShapeTensor((plan.batch,)),))
            return [int(word) for word in words] if ops.exact else None
        like = (ShapeTensor((plan.batch, plan.vocab)),)
        first = await strand.receive(servers[0], logits_tag(token))
        second = await strand.receive(servers[1], logits_tag(token))
        strand.charge(0, 24 * like[0].size)
        if not ops.exact:
            return None
        chosen: list[int] = (ops.unpack(first, like)[0] + ops.unpack(second, like)[0]).argmax(1).tolist()
        return chosen
