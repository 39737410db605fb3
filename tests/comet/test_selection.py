"""Indexing under MPC: the rows a plain index would give, at the cost the formulas say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comet_sim.comet.selection import select_active, selection_bytes, selection_rounds
from comet_sim.mpc.session import Session
from comet_sim.roles.dealer import Dealing
from comet_sim.testing.harness import Bits, Integers, ProtocolRun, run_protocol

MASKS = arrays(bool, st.integers(1, 40))
WAYS = ["one-hot", "compaction"]


def _selected(mask: np.ndarray, room: int, way: Any, **how: Any) -> tuple[ProtocolRun, np.ndarray]:
    table = np.random.default_rng(mask.size).integers(-(2**40), 2**40, (mask.size, 3))

    async def program(s: Session, words: Any, rows: Any) -> Any:
        return await select_active(s, words & 1, rows, room, way)

    expected = np.zeros((room, 3), np.int64)
    expected[: mask.sum()] = table[mask]
    return run_protocol(program, Bits(mask.astype(np.int64)), Integers(table), **how), expected


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40, deadline=None)
@given(mask=MASKS, spare=st.integers(0, 5))
@example(mask=np.ones(1, bool), spare=0)
@example(mask=np.zeros(5, bool), spare=0)
@example(mask=np.ones(32, bool), spare=0)
@example(mask=np.ones(33, bool), spare=0)
def test_active_rows_in_their_order_at_the_stated_cost(way: Any, mask: np.ndarray, spare: int) -> None:
    room = min(mask.size, max(1, int(mask.sum())) + spare)
    run, expected = _selected(mask, room, way)
    np.testing.assert_array_equal(run.raw, expected)
    assert run.bytes == selection_bytes(way, mask.size, 3, room)
    assert run.rounds == selection_rounds(way, mask.size, room)
    assert run.unused == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["offline", "on-demand", "streamed"])
def test_dealer_modes_and_shapes(way: Any, mode: Any) -> None:
    mask = np.arange(21) % 3 == 1
    run, expected = _selected(mask, 9, way, dealing=Dealing(mode))
    np.testing.assert_array_equal(run.raw, expected)
    shape, _ = _selected(mask, 9, way, dealing=Dealing(mode), exact=False)
    assert shape.records() == run.records()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_depends_on_who_is_active(way: Any) -> None:
    first, _ = _selected(np.arange(20) < 6, 6, way)
    second, _ = _selected(np.arange(20) % 2 == 5, 6, way)
    assert first.records() == second.records()
    assert not first.reveals


@pytest.mark.parametrize("room", [0, 6])
def test_room_outside_the_table_is_refused(room: int) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        _selected(np.zeros(5, bool), room, "one-hot")
    assert caught.group_contains(ValueError, match=f"room for {room} of 5 rows")
