"""Functions made of two polynomials: 0 below the first, x above the second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from comet_sim.mpc.compare import below, inverted, keep, without
from comet_sim.mpc.normal import Ways
from comet_sim.mpc.session import Session
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import rescale

__all__ = ["Piece", "piecewise"]

_EXTRA = 6
"""More fraction bits of coefficients than of values: 0.0018 x^6 would be off by 0.006 at 3 with 16."""


@dataclass(frozen=True)
class Piece:
    """A polynomial, by power, on [low, high)."""

    low: float
    high: float
    coefficients: Mapping[int, float]

    def __hash__(self) -> int:
        return hash((self.low, self.high, *self.coefficients.items()))


@replayable
async def piecewise(s: Session, x: Any, pieces: tuple[Piece, Piece], w: Ways) -> Any:
    """Return 0 below the first piece, the pieces' polynomials, and x above the second.

    Powers, then three comparisons, then a choice of three: side by side as far as `w.steps` says. In sequence each
    term is rescaled by itself.
    """
    first, second = pieces
    powers = await _powers(s, x, {power for piece in pieces for power in piece.coefficients}, w)
    values = [*(await _polynomials(s, powers, pieces, w)), x]
    # Below the first piece, below the second, above the second.
    edges = (
        s.add_public(x, -s.constant(first.low)),
        s.add_public(x, -s.constant(second.low)),
        s.add_public(-x, s.constant(second.high)),
    )
    if w.steps == "parallel":
        bits = await below(s, s.ops.stack(list(edges)), w.v)
    else:
        bits = [await below(s, edge, w.v) for edge in edges]
    low, middle, high = bits[0], bits[1], bits[2]
    chosen = [without(middle, low, w.v), without(inverted(s, middle, w.v), high, w.v), high]
    with s.scope("choose"):
        if w.steps == "parallel":
            kept = await keep(s, s.ops.stack(chosen), s.ops.stack(values), w.v)
            return s.ops.sum(kept, 0)[0]
        total = await keep(s, chosen[0], values[0], w.v)
        for bit, value in zip(chosen[1:], values[1:], strict=True):
            total = total + await keep(s, bit, value, w.v)
        return total


async def _powers(s: Session, x: Any, wanted: set[int], w: Ways) -> dict[int, Any]:
    """Return the powers of x that are wanted, of 1 to 4 and 6."""
    with s.scope("powers"):
        found = {1: x, 2: await rescale(s, await w.square(s, x))}
        if w.steps == "parallel" and {3, 4} <= wanted:
            raised = await rescale(s, await w.multiply(s, s.ops.stack([x, found[2]]), found[2][None]))
            found[3], found[4] = raised[0], raised[1]
        else:
            if 3 in wanted:
                found[3] = await rescale(s, await w.multiply(s, found[2], x))
            found[4] = await rescale(s, await w.square(s, found[2]))
        if 3 in found:
            found[6] = await rescale(s, await w.square(s, found[3]))
        else:
            found[6] = await rescale(s, await w.multiply(s, found[4], found[2]))
        return found


async def _polynomials(s: Session, powers: dict[int, Any], pieces: tuple[Piece, ...], w: Ways) -> list[Any]:
    """Return the value of each piece's polynomial: products with public coefficients."""
    bits = s.bits + _EXTRA
    terms = [
        [powers[power] * s.constant(factor, bits) for power, factor in piece.coefficients.items() if power]
        for piece in pieces
    ]
    constants = [s.constant(piece.coefficients.get(0, 0.0)) for piece in pieces]
    if w.steps == "parallel":
        summed = await rescale(s, s.ops.stack([sum(each[1:], each[0]) for each in terms]), bits)
        sums = [summed[i] for i in range(len(pieces))]
    else:
        sums = []
        for each in terms:
            parts = [await rescale(s, term, bits) for term in each]
            sums.append(sum(parts[1:], parts[0]))
    return [s.add_public(total, constant) for total, constant in zip(sums, constants, strict=True)]
