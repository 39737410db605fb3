"""What the noise on counts adds up to over a run: composition by dp-accounting (the extra `privacy`).

Neighbours are runs whose masks differ and whose public lengths do not. Three ways to differ, weakest first: one
bit of one mask; one bit in each mask; all bits of one token's masks. A guarantee for an input would be a fourth,
and there is none: one input token may change every bit of all later masks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import expm1, log
from typing import Any

from comet_sim.comet.indexing import Part
from comet_sim.comet.noise import Mechanism, mechanism
from comet_sim.comet.privacy import noise_of
from comet_sim.comet.record import SparsityRecord
from comet_sim.comet.settings import CometSettings
from comet_sim.errors import InputError

__all__ = ["Changed", "composed", "group_delta", "require_accounting", "total_epsilon"]

_NAMES: dict[Part, str] = {"ffn": "neurons", "heads": "heads"}
_GRID = 1000
"""Privacy losses are rounded up to this many steps between 0 and the largest of one reveal."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Counts that change: so many reveals of a mechanism, each by up to `bits`."""

    mechanism: Mechanism
    reveals: int
    bits: int = 1


def require_accounting() -> Any:
    """Return dp-accounting's module of privacy loss distributions; InputError when it is not installed."""
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise InputError(
            "noise on revealed counts needs dp-accounting to say what it adds up to; install the extra: "
            "pip install 'comet-sim[privacy]'"
        ) from None
    return privacy_loss_distribution


def composed(settings: CometSettings, record: SparsityRecord) -> dict[str, Any]:
    """Return what all counts revealed in a run give away, JSON-able; by part and together.

    A part with `counts` "exact" has no guarantee. Epsilons are None where there is none: delta would reach 1.
    """
    parts: list[Part] = [*(["ffn"] if settings.ffn else []), *(["heads"] if settings.heads else [])]  # type: ignore[list-item]
    found: dict[str, Any] = {"neurons": None, "heads": None, "together": None}
    each_bit: list[Changed] = []
    each_token: list[Changed] = []
    for part in parts:
        noise = noise_of(settings, part)
        if noise is None:
            found[_NAMES[part]] = {"counts": "exact"}
            continue
        shapes = [mask.shape for call, mask in record.masks if call.part == part]
        layers = len({call.layer for call, _ in record.masks if call.part == part})
        bit = Changed(mechanism(noise), sum(rows for rows, _ in shapes))
        token = Changed(bit.mechanism, layers, max((width for _, width in shapes), default=1))
        each_bit.append(bit)
        each_token.append(token)
        found[_NAMES[part]] = {
            "counts": "under noise",
            "epsilon": noise.epsilon,
            "delta": noise.delta,
            "achieved_delta": float(bit.mechanism.achieved),
            "shift": bit.mechanism.shift,
            "reveals": bit.reveals,
            **_totals([bit], [token]),
        }
    if len(each_bit) == len(parts) == 2:
        found["together"] = _totals(each_bit, each_token)
    return found


def _totals(bits: list[Changed], tokens: list[Changed]) -> dict[str, Any]:
    # A bit lies in one mask, so the other reveals do not change: the worse part's own guarantee.
    worst = max(bits, key=lambda each: (each.mechanism.noise.epsilon, each.mechanism.noise.delta))
    one = {
        "epsilon": worst.mechanism.noise.epsilon,
        "delta": max(each.mechanism.noise.delta for each in bits),
    }
    token = {"bits": [each.bits for each in tokens], "reveals": sum(each.reveals for each in tokens)}
    return {
        "one_bit": one,
        "one_bit_each_reveal": {"reveals": sum(each.reveals for each in bits), **_guarantee(bits)},
        "one_token": {**token, **_guarantee(tokens)},
    }


def _guarantee(changes: list[Changed]) -> dict[str, float | None]:
    """Return epsilon at twice the sum of all deltas: half of it for what composition needs."""
    delta = 2 * sum(each.reveals * group_delta(each.mechanism, each.bits) for each in changes)
    if not delta:
        return {"epsilon": 0.0, "delta": 0.0}
    if delta >= 1:
        return {"epsilon": None, "delta": None}
    # Losses were rounded up, so the plain sum of epsilons may be less.
    plain = sum(each.reveals * each.bits * each.mechanism.noise.epsilon for each in changes)
    return {"epsilon": min(plain, total_epsilon(changes, delta)), "delta": delta}


def group_delta(mechanism: Mechanism, bits: int) -> float:
    """Return the delta of a reveal whose count changes by `bits` (epsilon is then `bits` times as large).

    delta (e^(k epsilon) - 1) / (e^epsilon - 1), at most 1. Source: group privacy, Dwork and Roth 2014, 2.3.
    """
    epsilon, delta = mechanism.noise.epsilon, mechanism.noise.delta
    if bits * epsilon > 700:
        return 1.0
    return min(1.0, delta * expm1(bits * epsilon) / expm1(epsilon))


def total_epsilon(changes: Iterable[Changed], delta: float) -> float:
    """Return the smallest epsilon, rounded up, at which all changes together are (epsilon, delta)-private.

    By privacy loss distributions of the very weights the noise is drawn with; infinite where delta is too small.
    """
    distributions = require_accounting()
    changes = [each for each in changes if each.reveals]
    if not changes:
        return 0.0
    step = max(each.mechanism.noise.epsilon * each.bits for each in changes) / _GRID
    total = None
    for each in changes:
        one = distributions.from_two_probability_mass_functions(
            _logs(each.mechanism, 0),
            _logs(each.mechanism, each.bits),
            value_discretization_interval=step,
            symmetric=False,
        )
        many = one.self_compose(each.reveals)
        total = many if total is None else total.compose(many)
    assert total is not None
    return float(total.get_epsilon_for_delta(delta))


def _logs(mechanism: Mechanism, count: int) -> dict[int, float]:
    """Return the logarithms of the probabilities of what is revealed for a count, from the mechanism's weights."""
    whole = log(sum(mechanism.weights))
    return {count + k: log(weight) - whole for k, weight in enumerate(mechanism.weights)}
