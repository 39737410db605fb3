"""Oblivious shuffle: shared tensors put into an order neither server knows, each knowing half of it.

The order is p1 after p0, where server i draws p_i from the seed it shares with the dealer. For p0, server 1
sends its share under a mask A; server 0 applies p0 to what it then has; the dealer has dealt both a sharing of
p0(A). The same with roles swapped for p1. Source: reconstruction after the permute-and-share of Chase, Ghosh
and Poburinnaya 2020, with a dealer in place of oblivious transfer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comet_sim.mpc.correlated import SHUFFLE, SHUFFLE_BITS, Half, Order
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["Shuffled", "shuffle"]


@dataclass(frozen=True, slots=True)
class Shuffled:
    """A share to be put in order along an axis; `bits`: XOR shares of bits, integers 0 or 1."""

    share: Any
    axis: int = 0
    bits: bool = False


async def shuffle(s: Session, order: Order, parts: Sequence[Shuffled], *, inverse: bool = False) -> list[Any]:
    """Put tensors into one secret order, or back: 2 rounds; each server sends their size once.

    8n bytes a tensor of n elements, n/8 of n bits. Tensors under one order get masks of their own.
    """
    shares = [part.share for part in parts]
    for holder in (1, 0) if inverse else (0, 1):
        shares = await _half(s, order, holder, inverse, parts, shares)
    return shares


async def _half(
    s: Session, order: Order, holder: int, inverse: bool, parts: Sequence[Shuffled], shares: list[Any]
) -> list[Any]:
    ops = s.ops
    for part, share in zip(parts, shares, strict=True):
        if share.shape[part.axis] != len(order):
            raise ValueError(f"axis {part.axis} of {share.shape} has no {len(order)} entries to put in order")
    halves = [
        Half(order, holder, inverse, part.axis, share.shape)
        for part, share in zip(parts, shares, strict=True)
    ]
    pieces = [
        s.correlated(SHUFFLE_BITS if part.bits else SHUFFLE, half)
        for part, half in zip(parts, halves, strict=True)
    ]
    hidden = []
    for part, share, piece in zip(parts, shares, pieces, strict=True):
        (mask,) = piece.seeded
        hidden.append(ops.pack_bits(share) ^ mask if part.bits else share - mask)
    # Only the server without the order sends; it keeps nothing but its part of the mask in order.
    received = await s.pass_to(holder, ops.pack(tuple(hidden)))
    s.charge(0, WORD_BYTES * 3 * sum(share.size for share in shares))
    results = []
    theirs = hidden if received is None else ops.unpack(received, tuple(hidden))
    for part, half, share, piece, other in zip(parts, halves, shares, pieces, theirs, strict=True):
        last = await piece.corrected()
        last = ops.unpack_bits(last, share.shape) if part.bits else last
        if s.index != holder:
            results.append(last)
            continue
        joined = share ^ ops.unpack_bits(other, share.shape) if part.bits else share + other
        arranged = joined
        if ops.exact:
            assert s.seed is not None, "seeds are shared in the set-up phase"
            arranged = half.arranged(joined, s.seed)
        results.append(arranged ^ last if part.bits else arranged + last)
    return results
