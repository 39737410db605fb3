"""Totals of the noise on counts, against sums over all outcomes of small mechanisms."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from math import exp
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.accounting import Changed, composed, group_delta, require_accounting, total_epsilon
from comet_sim.comet.indexing import Call
from comet_sim.comet.noise import Mechanism, mechanism
from comet_sim.comet.record import SparsityRecord
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.errors import InputError

pytest.importorskip("dp_accounting")


def _pairs(found: Mechanism, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of every outcome for two counts that differ by `bits`."""
    one = np.array(found.weights, float) / 2**64
    return np.pad(one, (0, bits)), np.pad(one, (bits, 0))


def _delta(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(
        max(np.maximum(a - exp(epsilon) * b, 0).sum() for a, b in ((first, second), (second, first)))
    )


@pytest.mark.parametrize("bits", [1, 3])
@pytest.mark.parametrize("reveals", [1, 2, 3])
def test_epsilons_hold_for_every_outcome_of_several_reveals(bits: int, reveals: int) -> None:
    found = mechanism(Noise(0.5, 0.001))
    first = second = np.ones(1)
    for _ in range(reveals):
        once = _pairs(found, bits)
        first, second = np.outer(first, once[0]).ravel(), np.outer(second, once[1]).ravel()
    delta = 2 * reveals * group_delta(found, bits)
    epsilon = total_epsilon([Changed(found, reveals, bits)], delta)
    assert _delta(first, second, epsilon) <= delta * (1 + 1e-9)
    # And it is no larger than it must be, but for the grid it is rounded up to.
    assert _delta(first, second, epsilon - 0.01) > delta


def test_two_mechanisms_together() -> None:
    neurons, heads = mechanism(Noise(0.5, 0.001)), mechanism(Noise(1.0, 0.01))
    first = np.outer(_pairs(neurons, 1)[0], _pairs(heads, 1)[0]).ravel()
    second = np.outer(_pairs(neurons, 1)[1], _pairs(heads, 1)[1]).ravel()
    epsilon = total_epsilon([Changed(neurons, 1), Changed(heads, 1)], 0.022)
    assert _delta(first, second, epsilon) <= 0.022 * (1 + 1e-9)
    assert _delta(first, second, epsilon - 0.01) > 0.022


@pytest.mark.parametrize("bits", [1, 2, 5, 40])
def test_group_privacy_bounds_the_exact_delta(bits: int) -> None:
    found = mechanism(Noise(0.1, 1e-4))
    bound = group_delta(found, bits)
    assert _delta(*_pairs(found, bits), 0.1 * bits) <= bound * (1 + 1e-9)
    assert group_delta(mechanism(Noise(10.0, 1e-4)), 10**6) == 1.0


def _record(layers: int, steps: int, width: int, part: Any = "ffn") -> SparsityRecord:
    record = SparsityRecord()
    for start in range(steps):
        for layer in range(layers):
            record.opened(Call(part, layer, start, 2, 0), np.ones((2, width), bool))
    return record


def test_totals_of_a_run() -> None:
    noise = Noise(0.01, 1e-6)
    settings = CometSettings(heads=False, privacy=PrivacySettings(noise, noise))
    found = composed(settings, _record(3, 5, 16))
    assert found["heads"] is None, "heads are not skipped: nothing of them is revealed"
    assert found["together"] is None
    neurons = found["neurons"]
    assert neurons["reveals"] == 30
    assert neurons["shift"] == 852
    assert neurons["achieved_delta"] <= neurons["delta"] == 1e-6
    assert neurons["one_bit"] == {"epsilon": 0.01, "delta": 1e-6}
    each = neurons["one_bit_each_reveal"]
    assert each["delta"] == pytest.approx(6e-5)
    assert 0.01 < each["epsilon"] < 0.3
    token = neurons["one_token"]
    assert (token["bits"], token["reveals"]) == ([16], 3)
    assert 0.16 < token["epsilon"] <= 0.48
    json.dumps(found, allow_nan=False)


def test_a_wide_layer_has_no_guarantee_for_a_token() -> None:
    settings = CometSettings(heads=False, privacy=PrivacySettings(Noise(0.1, 1e-6)))
    token = composed(settings, _record(2, 1, 4096))["neurons"]["one_token"]
    assert token["epsilon"] is None
    assert token["delta"] is None


def test_exact_counts_are_said_to_be_exact() -> None:
    record = _record(1, 1, 4)
    record.masks += _record(1, 1, 4, "heads").masks
    assert composed(CometSettings(), record) == {
        "neurons": {"counts": "exact"},
        "heads": {"counts": "exact"},
        "together": None,
    }
    mixed = composed(CometSettings(privacy=PrivacySettings(heads=Noise(1.0, 1e-6))), record)
    assert mixed["neurons"] == {"counts": "exact"}
    assert mixed["heads"]["counts"] == "under noise"
    assert mixed["together"] is None, "with exact counts in one part there is no total"


def test_both_parts_of_a_real_run(comet: Callable[..., Any]) -> None:
    noise = Noise(0.01, 1e-6)
    settings = CometSettings(source="oracle", privacy=PrivacySettings(noise, Noise(0.02, 1e-6)))
    run = comet("opt-demo", settings, prompt=(5, 17), output=3, exact=False)
    found = composed(settings, run.outcome.sparsity)
    layers = len({call.layer for call, _ in run.outcome.sparsity.masks})
    assert found["neurons"]["reveals"] == found["heads"]["reveals"] == layers * 4
    assert found["together"]["one_bit"] == {"epsilon": 0.02, "delta": 1e-6}
    together = found["together"]["one_bit_each_reveal"]
    assert together["epsilon"] > max(
        found[part]["one_bit_each_reveal"]["epsilon"] for part in ("neurons", "heads")
    )


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(InputError, match=r"pip install 'comet-sim\[privacy\]'"):
        require_accounting()
    settings = CometSettings(heads=False, privacy=PrivacySettings(Noise(0.01, 1e-6)))
    with pytest.raises(InputError):
        composed(settings, _record(1, 1, 4))
    assert composed(CometSettings(heads=False), _record(1, 1, 4))["neurons"] == {"counts": "exact"}
