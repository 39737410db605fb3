"""A server: receives shares of the model, then answers token by token. The dealer walks `serve` too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from comet_sim.actors import Party, Strand
from comet_sim.models.decoder import PrivateDecoder
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import Ops, Shape, ShapeTensor
from comet_sim.roles.dealer import DEALER_SEED
from comet_sim.roles.owner import weight_position, weight_tag
from comet_sim.roles.plan import Plan
from comet_sim.roles.user import INPUT_SEED, go_tag, input_position, input_tag, logits_tag, token_tag

__all__ = ["receive_model", "serve"]


async def receive_model(
    strand: Strand,
    index: int,
    owner: Party,
    dealer: Party,
    user: Party,
    ops: Ops,
    shapes: Mapping[str, Shape],
) -> None:
    """Fill the server's vault in the set-up phase: its share of every weight, and its seeds."""
    vault = strand.party.vault
    weights: dict[str, Any] = {}
    with strand.scope("weights"):
        if index == 0:
            seed = await strand.receive(owner, "weights/seed")
            prg = Prg(seed) if ops.exact else None
            for name, shape in shapes.items():
                tensor = ShapeTensor(shape)
                strand.charge(0, 8 * tensor.size)
                weights[name] = (
                    prg.words(weight_position(name), tensor.size).reshape(shape) if prg else tensor
                )
        else:
            for name, shape in shapes.items():
                buffer = await strand.receive(owner, weight_tag(name))
                weights[name] = ops.unpack(buffer, (ShapeTensor(shape),))[0]
    vault["weights"] = weights
    vault["seed/dealer"] = await strand.receive(dealer, DEALER_SEED)
    if index == 0:
        vault["seed/user"] = await strand.receive(user, INPUT_SEED)
    await strand.settle()


async def serve(
    s: Session,
    model: PrivateDecoder,
    plan: Plan,
    user: Party,
    user_prg: Prg | None,
    on_token: Callable[[int], None] | None = None,
) -> None:
    """Answer one user: a prompt pass, then a decode step a token, each for all sequences of the batch.

    `user_prg` is server 0's stream of the user's seed (exact runs). `on_token` is told each finished step.
    """
    cache = model.new_cache(plan.batch)
    chosen: list[int] | None = None
    for token in range(plan.output_tokens):
        with s.scope(f"token{token}"):
            with s.scope("input"):
                shape = (plan.rows(token), plan.vocab)
                if token and plan.reveal == "servers":
                    onehot = _public_onehot(s, chosen, shape)
                else:
                    onehot = await _user_input(s, plan, user, user_prg, token, shape)
                if onehot is None:
                    return
            logits = await model.forward(s, onehot, cache)
            with s.scope("reveal"):
                if plan.reveal == "servers":
                    chosen = await _open_tokens(s, user, token, logits)
                    if plan.stop_at_eos and chosen == [plan.eos_id]:
                        return
                else:
                    s.send_share(user, logits_tag(token), logits)
                    if s.index == 0:
                        s.reveal("user", "logits", "the user picks the next token", logits.size)
        if on_token is not None:
            on_token(token)


async def _user_input(
    s: Session, plan: Plan, user: Party, user_prg: Prg | None, token: int, shape: Shape
) -> Any:
    """Return this server's share of the one-hot rows, or None when the user has stopped."""
    if token and plan.stop_at_eos:
        go = await s.receive(user, go_tag(token))
        if s.ops.exact and go == b"\0":
            return None
    if s.index != 0:
        return await s.receive_share(user, input_tag(token), shape)
    tensor = ShapeTensor(shape)
    s.charge(0, 8 * tensor.size)
    return tensor if user_prg is None else user_prg.words(input_position(token), tensor.size).reshape(shape)


def _public_onehot(s: Session, tokens: list[int] | None, shape: Shape) -> Any:
    """Return a sharing of public tokens' one-hot rows (B, V): server 0 holds them, server 1 zeros."""
    rows = np.zeros(shape, np.int64)
    if s.index == 0 and tokens is not None:
        rows[np.arange(len(tokens)), tokens] = 1
    return s.ops.public(rows)


async def _open_tokens(s: Session, user: Party, token: int, logits: Any) -> list[int] | None:
    """Open the logits (B, V) to both servers; server 0 tells the user the greedy tokens, a word each."""
    (opened,) = await s.open(logits)
    chosen: list[int] | None = opened.argmax(1).tolist() if s.ops.exact else None
    if s.index == 0:
        s.reveal("server0,server1", "logits", "the servers pick the next token", logits.size)
        words = s.ops.public(np.array(chosen or [0] * logits.shape[0], np.int64))
        s.send_share(user, token_tag(token), words)
    return chosen
