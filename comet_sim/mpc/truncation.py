"""Rescaling after a product: local truncation, or the interactive one that cannot wrap.

Local: no bytes, wrong by 2^(64-f) with probability |x| / 2^64. Interactive: one round, 4n bytes, exact but for one
unit in the last place. The run's setting decides (`protocol.truncation`), or the suite that brings its own.

Interactive: with x + 2^62 in [0, 2^63) the two shares, as numbers of 64 bits, add up to it plus w 2^64, and w is
the OR of their highest bits. Each server knows one of those, so one product of private bits, modulo 2^32 only,
corrects what a local shift gets wrong. Counts are those of SPU's two-party truncation, measured; the protocol is
a reconstruction that has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from comet_sim.mpc.correlated import PRIVATE, PRIVATE_32
from comet_sim.mpc.lanes import lane_words, swap_lanes, unpack_lanes
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["divided", "rescale", "scaled"]

_WORD_BITS = 64
_HEADROOM = 62
"""Values to be truncated interactively lie in [-2^62, 2^62)."""


async def rescale(s: Session, share: Any, bits: int | None = None) -> Any:
    """Divide a share by 2^bits (default: the fractional bits), by the run's way of truncation.

    `local`: no bytes. `interactive`: 1 round, 4n bytes (8n for more than 32 bits), as many of correction.
    """
    if s.truncation == "local":
        return s.truncate(share, bits)
    return await _interactive(s, share, s.bits if bits is None else bits)


async def scaled(s: Session, share: Any, factor: float) -> Any:
    """Multiply by a public number: a product by an integer, and `rescale`."""
    return await rescale(s, share * s.constant(factor))


async def divided(s: Session, share: Any, divisor: int) -> Any:
    """Divide by a small public integer: locally, or by a product with its reciprocal and `rescale`."""
    if s.truncation == "local":
        return s.divide(share, divisor)
    # As many more bits as the divisor has: its reciprocal keeps `s.bits` of them, and the product its size.
    bits = s.bits + divisor.bit_length()
    return await rescale(s, share * round((1 << bits) / divisor), bits)


async def _interactive(s: Session, share: Any, bits: int) -> Any:
    """Shift the share, and take away the wrap: w 2^(64-bits), of which w modulo 2^bits matters."""
    if s.auditor is not None:
        s.auditor.truncation(s.id, s.step, s.path, s.index, share, local=False)
    width = 4 if bits <= 32 else WORD_BYTES
    shifted = s.add_public(share, 1 << _HEADROOM)
    top = shifted >> (_WORD_BITS - 1) & 1
    both = await _private_product(s, top, width)
    # top OR top of the other: the sum minus the product.
    wraps = top - both
    quotient = _logical_shift(s, shifted, bits) - (wraps << (_WORD_BITS - bits))
    # Both shifts round down; one more makes the error symmetric, above or below by less than one unit.
    return s.add_public(quotient, 1 - (1 << (_HEADROOM - bits)))


def _logical_shift(s: Session, x: Any, bits: int) -> Any:
    """Shift to the right with zeros from the left: numpy's shift of signed words copies the sign."""
    return x.view(np.uint64).__rshift__(np.uint64(bits)).view(np.int64) if s.ops.exact else x


async def _private_product(s: Session, own: Any, width: int) -> Any:
    """Return shares, modulo 2^(8 width), of the product of a number server 0 has and one server 1 has.

    One round, `width` bytes an element. Dealt: r0 to server 0, r1 to server 1, and shares of r0 r1.
    """
    words = lane_words(own.size, width)
    piece = s.correlated(PRIVATE if width == WORD_BYTES else PRIVATE_32, (words,))
    mask = unpack_lanes(s.ops, piece.seeded[0], own.shape, width)
    mine = own - mask
    (theirs,) = await swap_lanes(s, width, mine)
    last = unpack_lanes(s.ops, await piece.corrected(), own.shape, width)
    s.charge(3 * words, WORD_BYTES * 5 * words)
    # Server 0: r0 f + r0 r1 + e f; server 1: e r1 + r0 r1, with e and f what was opened.
    return last + theirs * (own if s.index == 0 else mask)
