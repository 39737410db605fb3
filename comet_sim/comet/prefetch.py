"""Filling holes of the KV cache before they are missed: which, by cost and benefit, and which ahead of a layer.

All of it follows from masks that were opened, so both servers decide alike without a word; integers only, so that
they cannot round apart. Source: paper (some inactive heads are computed early, by a cost-benefit estimate); the
estimate itself is a reconstruction, the lookahead an extension of this project.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.settings import Policy

__all__ = ["Chances", "Fills", "HeadHistory", "choose", "likely", "plan_fills", "wanted"]

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]

_BITS = 30
_ONE = 1 << _BITS
"""A chance of 1: chances are integers in units of 2^-30."""


def wanted(active: Mask) -> Mask:
    """Return which new K/V entries a pass needs (B, m, K/V heads): the head is active then, or later in the pass."""
    later: Mask = np.logical_or.accumulate(active[:, ::-1], axis=1)[:, ::-1]
    return later


@dataclass(frozen=True, slots=True)
class Chances:
    """For each K/V head (K/V heads,), the chance that it is active at the next token, and ever; units of 2^-30."""

    next: Ints
    ever: Ints


class HeadHistory:
    """How often a layer's K/V heads woke up: what opened masks say about the tokens to come.

    `idle` counts tokens without the head that another token followed, `starts` those that one with it followed; of
    all sequences together.
    """

    __slots__ = ("_last", "idle", "starts")

    def __init__(self) -> None:
        self._last: Mask | None = None
        self.idle: Ints | None = None
        self.starts: Ints | None = None

    def forget(self) -> None:
        """Start anew: after a new secret order nobody knows which head is which."""
        self._last = None
        if self.idle is not None:
            self.idle = self.starts = np.zeros_like(self.idle)

    def see(self, active: Mask) -> None:
        """Take the opened mask (B, m, K/V heads) of the tokens that follow."""
        known = active if self._last is None else np.concatenate([self._last, active], 1)
        idle = ~known[:, :-1]
        starts = (idle & known[:, 1:]).sum((0, 1), dtype=np.int64)
        count = idle.sum((0, 1), dtype=np.int64)
        self.idle = count if self.idle is None else self.idle + count
        self.starts = starts if self.starts is None else self.starts + starts
        self._last = active[:, -1:]

    def chances(self, passes: int | None) -> Chances:
        """Return the chances of a head that is inactive now, if `passes` more tokens follow (None: no end known).

        Next: (starts + 1) / (idle + 2), the rule of succession. Ever: in one of the passes, each like the next.
        """
        if self.idle is None or self.starts is None:
            raise ValueError("no mask has been seen")
        next = ((self.starts + 1) << _BITS) // (self.idle + 2)
        if passes is None:
            return Chances(next, np.full_like(next, _ONE))
        return Chances(next, _ONE - _power(_ONE - next, passes))


def _power(base: Ints, exponent: int) -> Ints:
    """Return base to a power, base and result in units of 2^-30."""
    result = np.full_like(base, _ONE)
    while exponent:
        if exponent & 1:
            result = (result * base) >> _BITS
        base = (base * base) >> _BITS
        exponent >>= 1
    return result


def choose(policy: Policy, holes: Mask, rows: Mask, columns: Mask, chances: Chances, head_dim: int) -> Mask:
    """Return which holes (B, n, K/V heads) to fill in a product that sends `rows` (B, n) and heads `columns` anyway.

    A sequence's head at a time, in their public order, all its holes or none: where filling costs nothing, or less
    than what it is likely to cost later. In units of 8d bytes (d the hidden width, dh the head's), *now* is 2 dh
    unless the head's columns are sent, and 1 a row that is not. *Later*, `merged` and `fused`: the chance that the
    head is ever active, times its rows, each weighed with the chance that no other head's hole brings it along;
    `merged` adds 2 dh times the chance that the head is active next (if not, the next token leaves a hole that brings
    the columns anyway). `immediate`: the chance that it is ever active, times 1 + 2 dh a hole.
    """
    width, stays = 2 * head_dim, _ONE - chances.next
    columns, filled = columns.copy(), np.zeros_like(holes)
    for own, sent, made in zip(holes, rows.copy(), filled, strict=True):
        # Chance, by row, that no head before g, or from g on, brings it along: their holes stay for another token.
        before = np.full(len(own), _ONE, np.int64)
        after = [before]
        for g in reversed(range(own.shape[1])):
            after.append(np.where(own[:, g], (after[-1] * stays[g]) >> _BITS, after[-1]))
        for g in range(own.shape[1]):
            after.pop()
            hole = own[:, g]
            if not hole.any():
                continue
            now = width * (not columns[g]) + int(np.count_nonzero(hole & ~sent))
            later = int(chances.ever[g])
            if policy == "immediate":
                later *= int(np.count_nonzero(hole)) * (1 + width) << _BITS
            else:
                later *= int(((before * after[-1]) >> _BITS)[hole].sum())
                if policy == "merged":
                    later += int(chances.next[g]) * width << _BITS
            if now == 0 or now << 2 * _BITS < later:
                made[:, g] = hole
                sent |= hole
                columns[g] = True
            else:
                before = np.where(hole, (before * stays[g]) >> _BITS, before)
    return filled


@dataclass(frozen=True, slots=True)
class Fills:
    """What a layer step makes of K and V, all masks over (B, tokens, K/V heads).

    `fresh` (m new tokens) beside their queries; `stored` from layer inputs in a refill: of the T tokens before, or of
    T + m where holes are filled early. Active heads `used` (B, K/V heads) read the tokens before, and miss `missed`
    (T) of them; `early` (T + m) are filled though nothing reads them yet.
    """

    fresh: Mask
    stored: Mask
    used: Mask
    missed: Mask
    early: Mask


def plan_fills(
    policy: Policy, prefetch: bool, holes: Mask, active: Mask, chances: Chances, head_dim: int
) -> Fills:
    """Say what a layer step makes: `holes` (B, T, K/V heads) before it, heads `active` (B, m, K/V heads) in it."""
    fresh = wanted(active)
    used = np.asarray(fresh.any(1))
    missed = holes & used[:, None]
    left = np.concatenate([holes & ~missed, ~fresh], 1)
    if not prefetch:
        return Fills(fresh, missed, used, missed, np.zeros_like(left))
    past = holes.shape[1]
    rows, old, sent = np.asarray(fresh.any(2)), np.asarray(missed.any(2)), np.asarray(used.any(0))
    if policy == "fused" and past:
        early = choose(policy, left, np.concatenate([old, rows], 1), sent, chances, head_dim)
        return Fills(fresh | early[:, past:], missed | early[:, :past], used, missed, early)
    # Beside the queries: holes of new tokens. Under `merged`, those of a head that no new token has active are left
    # to the refill, where its older holes are.
    beside = left[:, past:]
    if policy == "merged" and past:
        beside = beside & sent
    beside = choose(policy, beside, rows, sent, chances, head_dim)
    early = np.concatenate([np.zeros_like(holes), beside], 1)
    stored = missed
    if policy == "merged" and past:
        apart = np.concatenate([left[:, :past], left[:, past:] & ~sent], 1)
        rows = np.concatenate([old, np.zeros_like(rows)], 1)
        apart = choose(policy, apart, rows, np.asarray(missed.any((0, 1))), chances, head_dim)
        stored = np.concatenate([missed, np.zeros_like(fresh)], 1) | apart
        early |= apart
    return Fills(fresh | beside, stored, used, missed, early)


def likely(holes: Mask, chances: Chances) -> Mask:
    """Return the holes (B, T, K/V heads) of heads that are more likely active at the next token than not."""
    return holes & (2 * chances.next > _ONE)
