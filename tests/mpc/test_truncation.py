"""Interactive truncation: right to one unit whatever the shares, at its cost, honoured by every product of a run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpc_cases import EDGES, derandomised, ring_arrays

from comet_sim.mpc.partial import Partial
from comet_sim.mpc.truncation import divided, rescale
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate
from comet_sim.testing import Integers, Public, run_protocol

LARGE = st.one_of(
    st.integers(-(2**62), 2**62 - 1),
    st.sampled_from([-(2**62), 2**62 - 1, *(e for e in EDGES if abs(e) < 2**62)]),
)


def interactive(program, *inputs, **more):
    return run_protocol(program, *inputs, truncation="interactive", audit=True, **more)


@derandomised
@given(ring_arrays(9, LARGE), st.integers(1, 48), st.integers(0, 2**32))
def test_no_value_wraps(x, bits, seed):
    """Up to 2^62 where a local truncation is wrong once in four: off by less than a unit, either way."""
    run = interactive(rescale, Integers(x), Public(bits), seed=seed)
    assert (abs(run.raw.astype(object) * 2**bits - x.astype(object)) <= 2**bits).all()
    assert run.auditor.wraps == 0
    assert (run.rounds, run.bytes) == (1, 9 * (4 if bits <= 32 else 8))


def test_the_auditor_counts_values_that_are_too_large():
    x = np.array([2**62 - 1, 2**62, -(2**62), -(2**62) - 1, 0, 2**63 - 1])
    assert interactive(rescale, Integers(x)).auditor.wraps == 3


@pytest.mark.parametrize("divisor", [3, 64, 160, 4096])
def test_division_by_a_public_number_keeps_its_digits(divisor):
    x = np.linspace(-3000, 3000, 501)
    run = interactive(divided, x, Public(divisor))
    assert (abs(run.values - x / divisor) <= 2.0**-16 + 2.0**-17 * abs(x / divisor)).all()
    assert (run.rounds, run.bytes) == (1, 4 * x.size)


def test_part_of_what_was_dealt_can_be_truncated():
    """Packed lanes of fewer numbers are the first of those dealt: with an odd count, too."""
    partial = Partial()

    async def program(s, x):
        return (
            await partial.run(s, rescale, x, (20,)) if s.index < 2 else await rescale(s, s.ops.zeros((20,)))
        )

    x = np.arange(-6, 7) * 2.0**12
    run = interactive(program, x)
    assert abs(run.values - x * 2.0**-16).max() <= 2.0**-16
    assert run.bytes == 4 * x.size


def scenario(**protocol):
    return {
        "model": "opt-demo",
        "workload": {"prompt_tokens": 6, "output_tokens": 2},
        "protocol": {"truncation": "interactive", **protocol},
        "systems": [{"name": "dense", "suite": "crypten-lean"}],
    }


def test_a_run_says_the_same_with_more_rounds_and_no_wraps():
    local, mixed = (
        simulate(scenario_from_dict(scenario(truncation=way))) for way in ("local", "interactive")
    )
    shape = simulate(scenario_from_dict(scenario() | {"execution": "shape"}))
    assert local.token_ids == mixed.token_ids
    assert shape.trace.digest == mixed.trace.digest
    assert mixed.summary["truncation_mode"] == "interactive"
    rounds = [each.summary["phases"]["online"]["rounds"] for each in (local, mixed)]
    assert rounds[1] > 1.4 * rounds[0]
    # Every truncated number of the run costs 4 bytes, once, and rounds of both protocols fit together.
    sent = [each.summary["phases"]["online"]["bytes"]["server0"] for each in (local, mixed)]
    assert sent[1] - sent[0] == 4 * mixed.summary["truncation"]["elements"]
