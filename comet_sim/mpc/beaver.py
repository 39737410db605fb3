"""Multiplication of shares with dealt triples: one opening, then local work.

Bytes are what one server sends. Every product leaves the scale of its operands added: the caller truncates
when both were fixed-point numbers.
"""

from __future__ import annotations

from typing import Any

from comet_sim.mpc.correlated import AND, B2A, MATMUL, MULTIPLY, SQUARE
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
    """Multiply matrices, with numpy's batch rules: one round, 8 B (mk + kn) bytes."""
    piece = s.correlated(MATMUL, x.shape, y.shape)
    a, b = piece.seeded
    e, f = await s.open(x - a, y - b)
    c = await piece.corrected()
    ops = s.ops
    inner = x.shape[-1]
    s.charge(2 * c.size * inner, WORD_BYTES * (2 * e.size + 2 * f.size + 2 * c.size))
    # E B + A F + E F for server 0 is E (B + F) + A F: two products instead of three.
    right = b + f if s.index == 0 else b
    return c + ops.matmul(e, right) + ops.matmul(a, f)


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
