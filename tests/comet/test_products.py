"""SOMM and SIMM: right entries, zeros elsewhere, and the bytes the formulas say, for any mask."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comet_sim.comet.components import components
from comet_sim.comet.simm import simm, simm_bytes
from comet_sim.comet.somm import somm, somm_bytes
from comet_sim.mpc.session import Session
from comet_sim.roles.dealer import Dealing
from comet_sim.testing.harness import Integers, ProtocolRun, run_protocol

MASKS = arrays(bool, st.tuples(st.integers(1, 6), st.integers(1, 8)))
INNER = 5


def _somm(mask: np.ndarray, way: Any, seed: int = 1, **how: Any) -> tuple[ProtocolRun, np.ndarray]:
    rng = np.random.default_rng(seed)
    m, n = mask.shape
    x, y = rng.integers(-99, 99, (m, INNER)), rng.integers(-99, 99, (INNER, n))

    async def program(s: Session, left: Any, right: Any) -> Any:
        seen = np.ones_like(mask) if s.index == 2 else mask
        product, _ = await somm(s, left, right, seen, way=way)
        return product

    return run_protocol(program, Integers(x), Integers(y), seed=seed, **how), np.where(mask, x @ y, 0)


EDGES = [
    np.zeros((3, 4), bool),
    np.ones((3, 4), bool),
    np.eye(4, dtype=bool),
    np.array([[0, 1, 0], [0, 0, 0]], bool),
    np.ones((1, 1), bool),
]


@pytest.mark.parametrize("way", ["somm", "dense", "per-entry", "row-wise"])
@settings(max_examples=25, deadline=None)
@given(mask=MASKS)
@example(mask=EDGES[0])
@example(mask=EDGES[1])
@example(mask=EDGES[2])
@example(mask=EDGES[3])
@example(mask=EDGES[4])
def test_somm_and_what_it_is_compared_with(way: str, mask: np.ndarray) -> None:
    run, expected = _somm(mask, way)
    np.testing.assert_array_equal(run.raw, expected)
    rows, columns, entries = int(mask.any(1).sum()), int(mask.any(0).sum()), int(mask.sum())
    m, n = mask.shape
    wanted = {
        "somm": 8 * INNER * (rows + columns),
        "dense": 8 * INNER * (m + n),
        "per-entry": 16 * INNER * entries,
        "row-wise": 8 * INNER * (rows + entries),
    }
    assert run.bytes == wanted[way]
    assert run.rounds == (1 if wanted[way] else 0)
    assert somm_bytes(mask, INNER) == wanted["somm"]
    assert run.unused == 0 or not entries


@settings(max_examples=25, deadline=None)
@given(mask=MASKS)
@example(mask=EDGES[0])
@example(mask=EDGES[1])
@example(mask=EDGES[3])
def test_simm(mask: np.ndarray) -> None:
    rng = np.random.default_rng(2)
    h = np.where(mask, rng.integers(-99, 99, mask.shape), 0)
    v = rng.integers(-99, 99, (mask.shape[1], 3))

    async def program(s: Session, left: Any, right: Any) -> Any:
        if s.index == 2:
            return await simm(s, left, right, np.ones(mask.shape[1], bool))
        # Both servers zero their shares off the mask, as after a non-linearity on wanted entries only.
        return await simm(s, s.ops.select(left, mask, 0), right, mask.any(0))

    run = run_protocol(program, Integers(h), Integers(v))
    np.testing.assert_array_equal(run.raw, h @ v)
    active = int(mask.any(0).sum())
    assert run.bytes == simm_bytes(*mask.shape, active, 3) == 8 * (mask.size + active * 3)


@settings(max_examples=10, deadline=None)
@given(mask=MASKS)
def test_simm_by_counts_tells_the_dealer_how_many(mask: np.ndarray) -> None:
    h = np.where(mask, 3, 0)
    v = np.arange(mask.shape[1] * 2).reshape(-1, 2)

    async def program(s: Session, left: Any, right: Any) -> Any:
        return await simm(s, s.ops.select(left, mask, 0), right, mask.any(0), dealing="counts")

    run = run_protocol(program, Integers(h), Integers(v), dealing=Dealing("on-demand"))
    np.testing.assert_array_equal(run.raw, h @ v)
    assert run.bytes == 8 * int(mask.any(0).sum()) * (mask.shape[0] + 2)


@pytest.mark.parametrize("way", ["somm", "dense", "per-entry", "row-wise"])
@pytest.mark.parametrize("mask", EDGES)
def test_shapes_leave_the_same_records(way: str, mask: np.ndarray) -> None:
    assert _somm(mask, way)[0].records() == _somm(mask, way, exact=False)[0].records()


def test_the_dealer_deals_the_same_for_every_mask() -> None:
    runs = [_somm(mask, "somm")[0] for mask in EDGES[:2]]
    assert (
        [ask.correction for ask in runs[0].requests] == [ask.correction for ask in runs[1].requests] == [12]
    )


@pytest.mark.parametrize("way", ["somm", "dense", "per-entry", "row-wise"])
def test_nothing_wanted_leaves_what_follows_in_its_place(way: Any) -> None:
    """The dealer, which knows no mask, names what the second product needs as if the first had opened something."""
    x, y, nothing = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4), np.zeros((2, 4), bool)

    async def program(s: Session, left: Any, right: Any) -> Any:
        await somm(s, left, right, nothing | (s.index == 2), way=way)
        return (await somm(s, left, right, ~nothing, way=way))[0]

    run = run_protocol(program, Integers(x), Integers(y))
    np.testing.assert_array_equal(run.raw, x @ y)


@settings(max_examples=60, deadline=None)
@given(mask=MASKS)
def test_components_are_those_of_the_bipartite_graph(mask: np.ndarray) -> None:
    graph = nx.Graph()
    graph.add_edges_from(
        (("row", int(i)), ("column", int(j))) for i, j in zip(*np.nonzero(mask), strict=True)
    )
    expected = sorted(
        (
            (sum(kind == "row" for kind, _ in part), sum(kind == "column" for kind, _ in part))
            for part in nx.connected_components(graph)
        ),
        reverse=True,
    )
    found = components(mask)
    assert list(zip(found.rows, found.columns, strict=True)) == expected
    assert found.entries == mask.sum()
    assert found.entries <= found.blocks
