"""Protocols on part of what was dealt: right values, the positions of the whole, nothing left waiting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from comet_sim.baselines import SUITES
from comet_sim.mpc import compare
from comet_sim.mpc.beaver import multiply
from comet_sim.mpc.partial import Partial
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import ShapeTensor
from comet_sim.roles.dealer import Dealing
from comet_sim.testing.harness import run_protocol

WHOLE = 12


def _relu(count: int) -> Any:
    partial = Partial()

    async def program(s: Session, x: Any) -> Any:
        part = x if s.index == 2 else x[:count]
        first = await partial.run(s, compare.relu, part, (WHOLE,))
        # A second protocol after it: positions must not depend on how many entries there were.
        second = await partial.run(s, multiply, part, (WHOLE,), (part,), (ShapeTensor((WHOLE,)),))
        return first, s.truncate(second)

    return program


@pytest.mark.parametrize("count", [0, 1, 5, WHOLE])
@pytest.mark.parametrize("mode", ["offline", "on-demand", "streamed"])
def test_part_of_a_relu(count: int, mode: Any) -> None:
    x = np.linspace(-2, 2, WHOLE)
    run = run_protocol(_relu(count), x, dealing=Dealing(mode))
    np.testing.assert_allclose(run.values[0], np.maximum(x[:count], 0), atol=1e-4)
    np.testing.assert_allclose(run.values[1], x[:count] ** 2, atol=1e-3)
    assert run.bytes == (232 + 16) * count
    assert run.unused == 0


@pytest.mark.parametrize("count", [0, 3, WHOLE])
@pytest.mark.parametrize("replay", [True, False])
def test_shapes_leave_the_same_records(count: int, replay: bool) -> None:
    x = np.linspace(-2, 2, WHOLE)
    exact = run_protocol(_relu(count), x)
    shape = run_protocol(_relu(count), x, exact=False, replay=replay)
    assert exact.records() == shape.records()


def test_the_dealer_deals_the_same_whatever_the_part() -> None:
    x = np.linspace(-2, 2, WHOLE)
    few, many = (run_protocol(_relu(count), x) for count in (2, 9))
    dealt = [[(ask.kind, ask.correction) for ask in run.requests] for run in (few, many)]
    assert dealt[0] == dealt[1]


@pytest.mark.parametrize("suite", ["crypten", "crypten-accurate", "crypten-lean"])
def test_part_of_a_softmax(suite: str) -> None:
    partial, softmax = Partial(), SUITES[suite].softmax
    rng = np.random.default_rng(3)
    x = rng.normal(size=(7, 9)) * 2
    allowed = np.tri(7, 9, 2, dtype=bool)

    async def program(s: Session, scores: Any) -> Any:
        keep = np.ones(7, bool) if s.index == 2 else np.array([1, 0, 1, 1, 0, 0, 1], bool)
        return await partial.run(s, softmax, scores[keep], (7, 9), (allowed[keep],), (allowed,))

    run = run_protocol(program, x)
    keep = np.array([1, 0, 1, 1, 0, 0, 1], bool)
    e = np.where(allowed, np.exp(x), 0)[keep]
    np.testing.assert_allclose(run.values, e / e.sum(1, keepdims=True), atol=0.02)
