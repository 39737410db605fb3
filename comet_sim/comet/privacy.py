"""Differential privacy on revealed counts: before a mask is opened, secretly many of its zeros become ones.

Each server draws one noise from its own randomness and never shows it, so a server that takes its own noise off
still faces the other's. Zeros are flipped in an order nobody opens, exactly as many as the noise says (or all of
them, if there are fewer); ones stay. Source: paper (zeros flipped to ones inside the protocol); the mechanism, two
noises and the order are reconstructions.

A count is that of one token: each row of a mask gets its own noise and, within the row, its own order. Were
one order shared by the rows, the flipped columns would coincide, and so stand out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.indexing import Call, Part
from comet_sim.comet.noise import mechanism
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.mpc.beaver import bit_and, bits_to_arithmetic
from comet_sim.mpc.compare import arithmetic_to_bits
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Variants
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.mpc.tensor import WORD_BYTES, ShapeTensor, packed_words
from comet_sim.mpc.transcript import replayable

__all__ = ["NOISE_ROUNDS", "IdealNoise", "draw_noise", "flip_zeros", "hide_counts", "noise_bytes", "noise_of"]

Mask = NDArray[np.bool_]

_SIGN = 63
_COMPARED = {"crypten": 208, "single-open": 152}

NOISE_ROUNDS = 13
"""Rounds `hide_counts` adds: two shuffles, B2A, comparison, AND."""


def noise_bytes(rows: int, width: int, v: Variants = CRYPTEN_WAY) -> int:
    """Return the bytes a server sends to hide the counts of a mask (rows, width).

    8 and 208 bytes a bit (B2A and comparison), and 32 bytes for each 64 bits (two shuffles, one AND).
    """
    bits = rows * width
    return (8 + _COMPARED[v.adder]) * bits + 4 * WORD_BYTES * packed_words(bits)


def noise_of(settings: CometSettings, part: Part) -> Noise | None:
    """Return what hides the counts of a part; None: they are revealed as they are."""
    if settings.privacy is None:
        return None
    return settings.privacy.ffn if part == "ffn" else settings.privacy.heads


def _order(call: Call, rows: int, width: int) -> Order:
    """Return the name of the order zeros are flipped in: rows stay whole, each with an order inside."""
    return Order(f"layer{call.layer}/{call.part}/noise", call.start, rows * width, width)


def draw_noise(noise: Noise, call: Call, rows: int, private: Prg) -> NDArray[np.int64]:
    """Return one server's noise for the rows of a call (rows, 1), from its own stream."""
    position = f"noise/layer{call.layer}/{call.part}/{call.start}".encode()
    return mechanism(noise).draw(private.words(position, rows)).reshape(rows, 1)


async def hide_counts(s: Session, bits: Any, noise: Noise, call: Call, v: Variants = CRYPTEN_WAY) -> Any:
    """Return XOR shares of the bits (m, n) with zeros flipped by both servers' noise; nothing is opened.

    `NOISE_ROUNDS` rounds, `noise_bytes` bytes. A noise is its server's additive share of the sum as it stands: the
    other's share of it is zero, which tells the other nothing, so that sharing it takes no message.
    """
    rows = bits.shape[0]
    if s.ops.exact:
        assert s.private is not None, "seeds are shared in the set-up phase"
        drawn: Any = draw_noise(noise, call, rows, s.private)
    else:
        drawn = ShapeTensor((rows, 1))
    return await flip_zeros(s, bits, drawn, _order(call, *bits.shape), v)


async def flip_zeros(s: Session, bits: Any, noise: Any, order: Order, v: Variants = CRYPTEN_WAY) -> Any:
    """Return XOR shares of the bits (m, n) with exactly min(noise, zeros) zeros of each row turned into ones.

    `noise` (m, 1): additive shares of numbers from 0 on, of the rows in the order's own order.
    """
    shape = bits.shape
    with s.scope("order"):
        (moved,) = await shuffle(s, order, [Shuffled(bits.reshape((bits.size,)), bits=True)])
    with s.scope("flip"):
        flipped = await _flipped(s, moved.reshape(shape), noise, v)
    with s.scope("order"):
        (back,) = await shuffle(s, order, [Shuffled(flipped.reshape((bits.size,)), bits=True)], inverse=True)
    return back.reshape(shape)


@replayable
async def _flipped(s: Session, bits: Any, noise: Any, v: Variants) -> Any:
    """Turn the first zeros of each row into ones: 9 rounds."""
    ones = await bits_to_arithmetic(s, bits)
    # A zero's rank: how many zeros there are up to it. It is flipped where noise - rank is not negative.
    rank = s.ops.cumsum(s.add_public(-ones, 1), 1)
    s.charge(0, WORD_BYTES * 3 * rank.size)
    below = (await arithmetic_to_bits(s, noise - rank, v) >> _SIGN) & 1
    chosen = below ^ 1 if s.index == 0 else below
    # bits OR chosen, 64 of them to a word.
    both = await bit_and(s, s.ops.pack_bits(bits), s.ops.pack_bits(chosen))
    return bits ^ chosen ^ s.ops.unpack_bits(both, bits.shape)


class IdealNoise:
    """What `hide_counts` does to a mask, for masks given from outside: it knows both servers' randomness.

    `shared`: the streams the servers share with the dealer, which orders come from; `private`: their own.
    """

    def __init__(self, privacy: PrivacySettings, shared: tuple[Prg, Prg], private: tuple[Prg, Prg]) -> None:
        self._privacy = privacy
        self._shared = shared
        self._private = private

    def hide(self, mask: Mask, call: Call) -> Mask:
        """Return a mask, in the orders of its call, with the zeros flipped that the protocol would flip."""
        noise = self._privacy.ffn if call.part == "ffn" else self._privacy.heads
        if noise is None:
            return mask
        rows, width = mask.shape
        drawn = sum(draw_noise(noise, call, rows, prg) for prg in self._private)
        order = _order(call, rows, width).joined(*self._shared)
        moved = mask.reshape(-1)[order].reshape(rows, width)
        moved = moved | (np.cumsum(~moved, 1) <= drawn)
        out = np.empty(mask.size, bool)
        out[order] = moved.reshape(-1)
        return out.reshape(rows, width)
