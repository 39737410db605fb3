"""Multiplication of shares with dealt triples: one opening, then local work.

Bytes are what one server sends. Every product leaves the scale of its operands added: the caller truncates
when both were fixed-point numbers.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.correlated import AND, B2A, MASKED, MATMUL, MULTIPLY, SQUARE
from comet_sim.mpc.masking import Masked, MaskedView
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import WORD_BYTES

__all__ = ["bit_and", "bits_to_arithmetic", "matmul", "multiply", "square"]


async def multiply(s: Session, x: Any, y: Any) -> Any:
    """Multiply elementwise, with broadcasting.

    One round, 8 (size x + size y) bytes. Source: Beaver 1991; counts as CrypTen 0.4.1, measured.
    """
    piece = s.correlated(MULTIPLY, x.shape, y.shape)
    a, b = piece.seeded
    e, f = await s.open(x - a, y - b)
    c = await piece.corrected()
    s.charge(3 * c.size, WORD_BYTES * (e.size + f.size + 3 * c.size))
    product = c + e * b + a * f
    return product + e * f if s.index == 0 else product


async def square(s: Session, x: Any) -> Any:
    """Square elementwise: one round, 8n bytes."""
    piece = s.correlated(SQUARE, x.shape)
    (a,) = piece.seeded
    (e,) = await s.open(x - a)
    c = await piece.corrected()
    s.charge(2 * c.size, WORD_BYTES * 4 * c.size)
    product = c + (e * a << 1)
    return product + e * e if s.index == 0 else product


async def matmul(s: Session, x: Any, y: Any) -> Any:
    """Multiply matrices, with numpy's batch rules: one round, 8 B (mk + kn) bytes.

    An operand with a fixed mask (`Masked`) is opened once: later products do not send it again.
    """
    if isinstance(x, Masked | MaskedView) or isinstance(y, Masked | MaskedView):
        return await _masked_matmul(s, x, y)
    piece = s.correlated(MATMUL, x.shape, y.shape)
    a, b = piece.seeded
    e, f = await s.open(x - a, y - b)
    return _combined(s, a, e, b, f, await piece.corrected())


def _combined(s: Session, a: Any, e: Any, b: Any, f: Any, c: Any) -> Any:
    """Return C + E B + A F, and E F besides at server 0: local."""
    ops = s.ops
    s.charge(2 * c.size * e.shape[-1], WORD_BYTES * (2 * e.size + 2 * f.size + 2 * c.size))
    # E B + A F + E F is E (B + F) + A F: two products instead of three.
    right = b + f if s.index == 0 else b
    return c + ops.matmul(e, right) + ops.matmul(a, f)


async def _masked_matmul(s: Session, x: Any, y: Any) -> Any:
    """Multiply where an operand, or both, keep their masks: only what was never opened is sent.

    Rows already opened cost nothing; with both operands opened before, there is no message at all.
    """
    views = [operand if isinstance(operand, Masked | MaskedView) else None for operand in (x, y)]
    pairs = list(zip((x, y), views, strict=True))
    piece = s.correlated(
        MASKED,
        *(plain.shape if view is None else view.base.ref(swapped=view.swapped) for plain, view in pairs),
    )
    fresh = iter(piece.seeded)
    masks = [next(fresh) if view is None else None for view in views]
    hidden = [
        plain - mask if view is None else view.base.pending()
        for (plain, view), mask in zip(pairs, masks, strict=True)
    ]
    sent = [part for part in hidden if part is not None]
    opened = iter(await s.open(*sent) if sent else ())
    operands = []
    for view, mask, part in zip(views, masks, hidden, strict=True):
        if view is None:
            operands.append((mask, next(opened)))
            continue
        if part is not None:
            view.base.admit(s, next(opened))
        operands.append(view.base.operand(swapped=view.swapped))
    return _combined(s, *operands[0], *operands[1], await piece.corrected())


async def bit_and(s: Session, x: Any, y: Any) -> Any:
    """AND of XOR-shared 64-bit words: one round, 16n bytes."""
    piece = s.correlated(AND, x.shape, y.shape)
    a, b = piece.seeded
    e, f = await s.open_bits(x ^ a, y ^ b)
    c = await piece.corrected()
    s.charge(3 * c.size, WORD_BYTES * 6 * c.size)
    product = c ^ (e & b) ^ (a & f)
    return product ^ (e & f) if s.index == 0 else product


async def bits_to_arithmetic(s: Session, bits: Any) -> Any:
    """Turn XOR-shared bits, one in the lowest position of a word each, into additive shares of 0 or 1.

    One round, 8 bytes a bit. With a dealt random bit r: z = bit XOR r is opened, bit = r + z - 2 r z.
    """
    piece = s.correlated(B2A, bits.shape)
    (boolean,) = piece.seeded
    (z,) = await s.open_bits(bits ^ boolean)
    arithmetic = await piece.corrected()
    s.charge(2 * z.size, WORD_BYTES * 3 * z.size)
    z = z & 1
    flipped = arithmetic - (arithmetic * z << 1)
    return flipped + z if s.index == 0 else flipped
