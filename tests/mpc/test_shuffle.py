"""Oblivious shuffle: the right order, both ways, at the stated cost, for values and for bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comet_sim.kernel import stream_key
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.roles.dealer import Dealing
from comet_sim.roles.plan import SERVERS
from comet_sim.testing.harness import Bits, Integers, run_protocol


def _prgs(seed: int) -> tuple[Prg, Prg]:
    first, second = (Prg(stream_key(seed, "dealer", name)) for name in SERVERS)
    return first, second


def _program(order: Order, *, axis: int = 0, bits: bool = False, inverse: bool = False) -> Any:
    async def program(s: Session, x: Any) -> Any:
        (moved,) = await shuffle(s, order, [Shuffled(x, axis, bits)], inverse=inverse)
        return moved

    return program


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from([0, 1]), st.integers(0, 2**32), st.booleans())
def test_values_come_out_in_the_order_of_both_servers(
    n: int, k: int, axis: int, seed: int, back: bool
) -> None:
    order = Order("test", 3, n)
    x = np.arange(n * k).reshape((n, k) if axis == 0 else (k, n)) - 7
    run = run_protocol(_program(order, axis=axis, inverse=back), Integers(x), seed=seed)
    joined = order.joined(*_prgs(seed))
    expected = np.take(x, np.argsort(joined) if back else joined, axis)
    np.testing.assert_array_equal(run.raw, expected)
    assert run.bytes == 8 * x.size
    assert run.rounds == 2
    assert run.corrections == 2 * x.size


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32))
def test_bits_come_out_in_order_at_a_64th_of_the_bytes(n: int, k: int, seed: int) -> None:
    order = Order("bits", 0, n)
    x = np.random.default_rng(seed).integers(0, 2, (n, k))
    # XOR shares of single bits: the masks of the harness are whole words, so cut them down to one bit.

    async def program(s: Session, word: Any) -> Any:
        (moved,) = await shuffle(s, order, [Shuffled(word & 1, bits=True)])
        return moved

    run = run_protocol(program, Bits(x), seed=seed)
    np.testing.assert_array_equal(run.xor, x[order.joined(*_prgs(seed))])
    assert run.bytes == 8 * -(-x.size // 64)


def test_shuffling_back_gives_the_tensor() -> None:
    order = Order("rows", 1, 6)

    async def program(s: Session, x: Any) -> Any:
        (moved,) = await shuffle(s, order, [Shuffled(x)])
        (back,) = await shuffle(s, order, [Shuffled(moved)], inverse=True)
        return back

    x = np.arange(24).reshape(6, 4)
    run = run_protocol(program, Integers(x))
    np.testing.assert_array_equal(run.raw, x)
    # Back at once, the way back starts while the second half of the way there is under way: server 0 sends both.
    assert run.rounds == 3
    assert run.bytes == 2 * 8 * x.size


@pytest.mark.parametrize("mode", ["offline", "on-demand", "streamed"])
def test_every_dealer_mode_gives_the_same_order(mode: Any) -> None:
    order = Order("modes", 0, 5)
    x = np.arange(10).reshape(5, 2)
    run = run_protocol(_program(order), Integers(x), seed=4, dealing=Dealing(mode))
    np.testing.assert_array_equal(run.raw, x[order.joined(*_prgs(4))])


def test_shapes_leave_the_same_records() -> None:
    order = Order("shapes", 0, 5)
    x = np.arange(10).reshape(5, 2)
    exact = run_protocol(_program(order), Integers(x), seed=4)
    shape = run_protocol(_program(order), Integers(x), seed=4, exact=False)
    assert exact.records() == shape.records()


def test_members_follow_their_groups() -> None:
    """Query heads and the K/V heads they share are put in order under one name, by two tensors' worth of shuffles."""
    prgs = _prgs(9)
    fine = Order("heads", 0, 12, 3).joined(*prgs)
    coarse = Order("heads", 0, 12, 3, coarse=True).joined(*prgs)
    assert sorted(fine) == list(range(12))
    np.testing.assert_array_equal(fine.reshape(4, 3) // 3, np.repeat(coarse[:, None], 3, 1))
    assert not np.array_equal(fine % 3, np.tile(np.arange(3), 4)), "members keep their order inside groups"


def test_orders_are_uniform_and_differ_by_version() -> None:
    prg = Prg(stream_key(1, "dealer", "server0"))
    seen = {tuple(Order("u", version, 3).of(prg)) for version in range(100)}
    assert len(seen) == 6


def test_a_wrong_axis_is_refused() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        run_protocol(_program(Order("x", 0, 4)), Integers(np.zeros((3, 2))))
    assert caught.group_contains(ValueError, match="no 4 entries")
