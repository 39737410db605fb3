"""The model owner: shares its weights between the servers in the set-up phase, and then leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comet_sim.actors import Party, Strand
from comet_sim.mpc.prg import SEED_BYTES, Prg
from comet_sim.mpc.tensor import Blank, Ops

__all__ = ["share_weights", "weight_position", "weight_tag"]


def weight_tag(name: str) -> str:
    """Return the tag of the message that carries a weight's share."""
    return f"weights/{name}"


def weight_position(name: str) -> bytes:
    """Return the PRG position of a weight's mask."""
    return f"weights/{name}".encode()


async def share_weights(
    strand: Strand,
    servers: tuple[Party, Party],
    ops: Ops,
    weights: Mapping[str, Any],
    exponents: Mapping[str, int],
) -> None:
    """Share every weight: a 16-byte seed to server 0, the rest, 8 bytes an element, to server 1.

    `weights` maps names to fixed-point tensors. The norms' public exponents enter the reveal ledger.
    """
    seed: Any = Blank(SEED_BYTES)
    prg = None
    if ops.exact:
        seed = strand.party.vault["seed"]
        prg = Prg(seed)
    with strand.scope("weights"):
        strand.send(servers[0], "weights/seed", seed)
        for name, weight in weights.items():
            with strand.scope(name):
                strand.charge(0, 16 * weight.size)
                if prg is not None:
                    weight = weight - prg.words(weight_position(name), weight.size).reshape(weight.shape)
                strand.send(servers[1], weight_tag(name), ops.pack((weight,)))
        if exponents:
            strand.reveal(
                "server0,server1",
                "norm exponents",
                "rescale each norm's input into the range of the inverse square root",
                len(exponents),
            )
