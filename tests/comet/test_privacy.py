"""Noise on counts as a protocol: as many zeros flipped as the noise says, none of the ones, at the stated cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare

from comet_sim.comet.indexing import Call, open_bits
from comet_sim.comet.noise import mechanism
from comet_sim.comet.privacy import NOISE_ROUNDS, IdealNoise, draw_noise, flip_zeros, hide_counts, noise_bytes
from comet_sim.comet.settings import Noise, PrivacySettings
from comet_sim.kernel import stream_key
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.prg import Prg
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Variants
from comet_sim.roles.dealer import Dealing
from comet_sim.roles.plan import SERVERS
from comet_sim.testing.harness import Bits, Integers, ProtocolRun, run_protocol

NOISE = Noise(0.7, 0.01)
MASKS = arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 70)))
EDGES = [np.zeros((3, 20), bool), np.ones((3, 20), bool), np.ones((1, 1), bool), np.zeros((1, 1), bool)]


def _prgs(seed: int, name: str) -> tuple[Prg, Prg]:
    first, second = (Prg(stream_key(seed, name, server)) for server in SERVERS)
    return first, second


def _call(mask: np.ndarray, start: int = 5) -> Call:
    return Call("ffn", 2, start, mask.shape[0], 0)


def _hidden(mask: np.ndarray, seed: int, noise: Noise = NOISE, **how: Any) -> ProtocolRun:
    async def program(s: Session, words: Any) -> Any:
        # The harness shares whole words: cut them down to one bit.
        return await hide_counts(s, words & 1, noise, _call(mask))

    return run_protocol(program, Bits(mask.astype(np.int64)), seed=seed, **how)


def _drawn(mask: np.ndarray, seed: int, noise: Noise = NOISE) -> np.ndarray:
    """Both servers' noise, a row of the noise's own order each."""
    each = (draw_noise(noise, _call(mask), mask.shape[0], prg) for prg in _prgs(seed, "private"))
    return sum(each)[:, 0]  # type: ignore[index]


@settings(max_examples=25, deadline=None)
@given(MASKS, st.integers(0, 2**32))
def test_exactly_as_many_zeros_are_flipped_as_the_noise_says(mask: np.ndarray, seed: int) -> None:
    run = _hidden(mask, seed)
    out = run.xor
    assert set(np.unique(out)) <= {0, 1}
    assert (out[mask] == 1).all(), "a true entry was dropped"
    rows, width = mask.shape
    order = Order("layer2/ffn/noise", 5, rows * width, width).joined(*_prgs(seed, "dealer"))
    row_of = order.reshape(rows, width)[:, 0] // width
    flipped = (out.sum(1) - mask.sum(1))[row_of]
    np.testing.assert_array_equal(flipped, np.minimum(_drawn(mask, seed), (~mask).sum(1)[row_of]))
    assert run.bytes == noise_bytes(rows, width)
    assert run.rounds == NOISE_ROUNDS


@settings(max_examples=25, deadline=None)
@given(MASKS, st.integers(0, 2**32))
def test_a_given_mask_gets_the_flips_the_protocol_makes(mask: np.ndarray, seed: int) -> None:
    ideal = IdealNoise(PrivacySettings(ffn=NOISE), _prgs(seed, "dealer"), _prgs(seed, "private"))
    np.testing.assert_array_equal(ideal.hide(mask, _call(mask)), _hidden(mask, seed).xor == 1)
    heads = Call("heads", 2, 5, mask.shape[0], 0)
    assert ideal.hide(mask, heads) is mask, "no noise was asked for on heads"


@pytest.mark.parametrize("mask", EDGES)
def test_edges(mask: np.ndarray) -> None:
    for seed in range(5):
        out = _hidden(mask, seed).xor == 1
        assert (out | mask == out).all()
        extra = out.sum(1) - mask.sum(1)
        np.testing.assert_array_equal(np.sort(extra), np.sort(np.minimum(_drawn(mask, seed), (~mask).sum(1))))


@pytest.mark.parametrize("noise", [0, 1, 7, 10**6])
def test_given_noise(noise: int) -> None:
    rng = np.random.default_rng(3)
    mask = rng.random((4, 30)) < 0.4

    async def program(s: Session, words: Any, drawn: Any) -> Any:
        return await flip_zeros(s, words & 1, drawn, Order("test", 0, mask.size, mask.shape[1]))

    run = run_protocol(program, Bits(mask.astype(np.int64)), Integers(np.full((4, 1), noise)))
    np.testing.assert_array_equal(run.xor.sum(1), np.minimum(mask.sum(1) + noise, 30))
    assert (run.xor[mask] == 1).all()
    if not noise:
        np.testing.assert_array_equal(run.xor == 1, mask)


def test_the_cheaper_adder() -> None:
    mask = np.eye(6, 64, dtype=bool)
    lean = Variants(adder="single-open")

    async def program(s: Session, words: Any) -> Any:
        return await hide_counts(s, words & 1, NOISE, _call(mask), lean)

    run = run_protocol(program, Bits(mask.astype(np.int64)), seed=8)
    np.testing.assert_array_equal(run.xor, _hidden(mask, 8).xor)
    assert run.bytes == noise_bytes(6, 64, lean) < noise_bytes(6, 64)


def test_revealed_counts_follow_the_mechanism() -> None:
    """Twelve runs of 500 tokens: the counts that are opened, against the distribution of two noises and the cap."""
    rng = np.random.default_rng(0)
    found = mechanism(NOISE)
    one = np.array(found.weights, float) / 2**64
    both = np.convolve(one, one)
    width = 24
    seen = {zeros: np.zeros(zeros + 1) for zeros in (width, 7)}
    for seed in range(12):
        zeros = np.where(np.arange(500) % 2, width, 7)
        mask = rng.permuted(np.arange(width) >= zeros[:, None], axis=1)

        async def program(s: Session, words: Any, mask: np.ndarray = mask) -> Any:
            hidden = await hide_counts(s, words & 1, NOISE, _call(mask))
            opened = await open_bits(s, hidden)
            return np.zeros(mask.shape, np.int64) if opened is None or s.index else opened

        counts = run_protocol(program, Bits(mask.astype(np.int64)), seed=seed).raw.sum(1)
        for kind, cells in seen.items():
            extra = (counts - mask.sum(1))[zeros == kind].astype(np.int64)
            cells += np.bincount(extra, minlength=kind + 1)
    for kind, cells in seen.items():
        expected = np.zeros(kind + 1)
        np.add.at(expected, np.minimum(np.arange(both.size), kind), both)
        expected *= cells.sum()
        # Cells of fewer than five are joined with the next.
        keep = expected >= 5
        joined = [np.append(x[keep], x[~keep].sum()) if (~keep).any() else x for x in (cells, expected)]
        assert chisquare(*joined).pvalue > 0.001


def test_any_zero_is_as_likely_to_be_flipped_as_any_other() -> None:
    mask = np.tile(np.arange(12) % 3 == 0, (800, 1))
    flips = np.zeros(12)
    for seed in range(3):
        flips += (_hidden(mask, seed).xor - mask).sum(0)
    assert not flips[mask[0]].any()
    assert chisquare(flips[~mask[0]]).pvalue > 0.001


def test_rows_are_flipped_apart_from_each_other() -> None:
    """The zeros flipped in one row say nothing of those in another: one order for all rows would make them agree."""
    mask = np.zeros((300, 40), bool)
    out = _hidden(mask, 1).xor
    share = out.mean()
    agree = (out[::2] & out[1::2]).mean()
    assert agree == pytest.approx(share**2, rel=0.1)


@pytest.mark.parametrize("mode", ["offline", "on-demand", "streamed"])
def test_every_dealer_mode(mode: Any) -> None:
    mask = np.arange(40).reshape(2, 20) % 4 == 0
    run = _hidden(mask, 3, dealing=Dealing(mode))
    np.testing.assert_array_equal(run.xor, _hidden(mask, 3).xor)
    assert run.records() == _hidden(mask, 3, dealing=Dealing(mode), exact=False).records()


@pytest.mark.parametrize("mask", [*EDGES, np.eye(7, 65, dtype=bool)])
@pytest.mark.parametrize("replay", [True, False])
def test_shapes_leave_the_same_records(mask: np.ndarray, replay: bool) -> None:
    assert _hidden(mask, 2).records() == _hidden(mask, 2, exact=False, replay=replay).records()


def test_the_dealer_and_the_bytes_are_the_same_for_every_mask() -> None:
    runs = [_hidden(mask, 4) for mask in EDGES[:2]]
    asked = [[(ask.elements, ask.correction) for ask in run.requests] for run in runs]
    assert asked[0] == asked[1]
    assert runs[0].bytes == runs[1].bytes


def test_noise_differs_by_call_and_by_server() -> None:
    mask = np.zeros((64, 1), bool)
    private = _prgs(1, "private")
    draws = {
        (number, call.part, call.layer, call.start): tuple(draw_noise(Noise(0.1, 1e-6), call, 64, prg)[:, 0])
        for number, prg in enumerate(private)
        for call in (_call(mask), _call(mask, 6), Call("heads", 2, 5, 64, 0), Call("ffn", 3, 5, 64, 0))
    }
    assert len(set(draws.values())) == len(draws) == 8
