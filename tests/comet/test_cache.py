"""Refills: K and V equal the projection of the stored input, and bytes those of the formulas, for any masks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from comet_sim.baselines import SUITES
from comet_sim.comet.decoder import CometDecoder
from comet_sim.comet.kv_cache import CacheCounts, CometCache, refill_bytes
from comet_sim.comet.masks import AllActive
from comet_sim.comet.prefetch import wanted
from comet_sim.comet.settings import CometSettings
from comet_sim.comet.somm import somm_bytes
from comet_sim.models.config import ModelConfig, Rope
from comet_sim.models.decoder import Layout
from comet_sim.models.rotary import rotary_tables
from comet_sim.mpc.session import Session
from comet_sim.roles.dealer import Dealing
from comet_sim.testing.harness import ProtocolRun, Public, run_protocol

HIDDEN, HEAD_DIM, HEADS = 12, 2, 4
POLICIES = ["immediate", "merged", "fused"]


def _config(grouped: bool) -> ModelConfig:
    """Biases and learned positions, or grouped queries and rotary positions."""
    return ModelConfig(
        architecture="test",
        name="test",
        layers=1,
        hidden=HIDDEN,
        heads=HEADS,
        kv_heads=HEADS // 2 if grouped else HEADS,
        head_dim=HEAD_DIM,
        ffn=4,
        vocab=8,
        max_positions=64,
        rope=Rope() if grouped else None,
        attention_bias=not grouped,
    )


@dataclass
class Played:
    """A run of one layer's projections over passes; holes and counts as server 0 has them.

    Passes are masks (sequences, tokens, query heads).
    """

    run: ProtocolRun
    holes: np.ndarray
    counts: CacheCounts
    keys: np.ndarray
    values: np.ndarray
    expected: tuple[np.ndarray, np.ndarray]

    def sent(self, scope: str) -> int:
        """Bytes server 0 sends to server 1 in an op."""
        text = self.run.names.text
        return sum(
            message.payload
            for message in self.run.online
            if text(message.src) == "server0" and scope in text(message.path).split("/")
        )


def _play(
    grouped: bool,
    passes: list[np.ndarray],
    *,
    lookahead: bool = False,
    exact: bool = True,
    dealing: Dealing | None = None,
    **switches: Any,
) -> Played:
    config = _config(grouped)
    rng = np.random.default_rng(3)
    batch, tokens = len(passes[0]), sum(heads.shape[1] for heads in passes)
    width = {"q": HEADS, "k": config.kv_heads, "v": config.kv_heads}
    weights = {
        f"layer0/attention/{part}/weight": rng.normal(size=(HIDDEN, width[part] * HEAD_DIM)) for part in "qkv"
    }
    if config.attention_bias:
        for part in "qkv":
            weights[f"layer0/attention/{part}/bias"] = rng.normal(size=width[part] * HEAD_DIM)
    inputs = rng.normal(size=(batch, tokens, HIDDEN))
    names = tuple(weights)
    left: list[CometCache] = []

    async def program(s: Session, named: tuple[str, ...], hidden: Any, *shares: Any) -> Any:
        own = dict(zip(named, shares, strict=True))
        choice = CometSettings(source="recorded", **switches)
        suite = SUITES["crypten-accurate"]
        model = CometDecoder(config, own, {}, suite, Layout(), choice, AllActive())
        model.passes = len(passes)
        cache, projection = model.new_cache(batch), model.attention.projection
        for heads in passes:
            # The dealer knows no mask.
            seen = np.ones_like(heads) if s.index == 2 else heads
            start, count = cache.length, heads.shape[1]
            cache.steps += 1
            rows = hidden[:, start : start + count].reshape((batch * count, HIDDEN))
            turns = model._turns(s, start, count)
            await projection.run(s, 0, rows, cache, seen.reshape(batch * count, HEADS), turns)
            cache.length += count
            if lookahead:
                found = await projection.look_ahead(s.fork(), 0, cache, projection.refill_weight(s, 0))
                cache.layers[0].fill(s, *found)
                cache.layers[0].mark(cache.counts, found[2], ahead=True)
        if s.index == 0:
            left.append(cache)
        layer = cache.layers[0]
        return layer.keys, layer.values, layer.inputs

    run = run_protocol(
        program, Public(names), inputs, *weights.values(), exact=exact, dealing=dealing or Dealing()
    )
    (cache,) = left
    keys, values = run.values[:2] if exact else (np.zeros(0), np.zeros(0))
    holes = cache.layers[0].holes
    assert holes is not None
    return Played(run, holes, cache.counts, keys, values, _projected(config, weights, inputs))


def _projected(
    config: ModelConfig, weights: dict[str, np.ndarray], inputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """K and V (B K/V heads, T, head dim) of all tokens in floating point, K turned by its position."""
    found = []
    for part in "kv":
        flat = inputs @ weights[f"layer0/attention/{part}/weight"]
        flat = flat + weights.get(f"layer0/attention/{part}/bias", 0)
        flat = flat.reshape(*inputs.shape[:2], -1, HEAD_DIM).swapaxes(1, 2)
        found.append(flat.reshape(-1, inputs.shape[1], HEAD_DIM))
    if config.rope is not None:
        cosines, sines = rotary_tables(config.rope, HEAD_DIM, 0, inputs.shape[1])
        found[0] = found[0] * cosines + np.roll(found[0], HEAD_DIM // 2, 2) * sines
    return found[0], found[1]


def _check_values(played: Played) -> None:
    there = ~played.holes.swapaxes(1, 2).reshape(played.keys.shape[:2])
    for made, expected in zip((played.keys, played.values), played.expected, strict=True):
        np.testing.assert_allclose(made[there], expected[there], atol=4e-4)
        # Holes are zero at both servers: what fills them is added.
        assert not made[~there].any()


def _model_of_misses(grouped: bool, passes: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each pass's fresh entries and misses, by the definition."""
    group = 2 if grouped else 1
    holes, found = np.zeros((len(passes[0]), 0, HEADS // group), bool), []
    for heads in passes:
        active = heads.reshape(*heads.shape[:2], -1, group).any(3)
        fresh = wanted(active)
        missed = holes & active.any(1)[:, None]
        found.append((fresh, missed))
        holes = np.concatenate([holes & ~missed, ~fresh], 1)
    return found


def _flat(mask: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, mask.shape[-1])


PASSES = st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(0, 4)).flatmap(
    lambda n: st.tuples(arrays(bool, (n[0], n[1], HEADS)), *[arrays(bool, (n[0], 1, HEADS))] * n[2])
)
NONE, ALL = np.zeros((1, 1, HEADS), bool), np.ones((1, 1, HEADS), bool)


@pytest.mark.parametrize("grouped", [False, True])
@settings(max_examples=25, deadline=None)
@given(passes=PASSES)
@example(passes=(np.zeros((1, 3, HEADS), bool), ALL, NONE, ALL))
@example(passes=(ALL, NONE, NONE, NONE))
def test_refills_are_projections_of_stored_inputs_and_cost_what_the_formulas_say(
    grouped: bool, passes: tuple[np.ndarray, ...]
) -> None:
    steps = _model_of_misses(grouped, list(passes))
    refill, total = {}, {}
    for policy in POLICIES:
        played = _play(grouped, list(passes), policy=policy)
        _check_values(played)
        total[policy] = played.run.bytes
        refill[policy] = played.sent("refill")
        assert played.counts.misses == played.counts.refilled == sum(int(each.sum()) for _, each in steps)
        if policy != "fused":
            expected = sum(refill_bytes(policy, missed, HIDDEN, HEAD_DIM) for _, missed in steps)
            assert refill[policy] == expected
    own = sum(
        somm_bytes(np.repeat(_flat(np.concatenate([heads, fresh, fresh], 2)), HEAD_DIM, 1), HIDDEN)
        for heads, (fresh, _) in zip(passes, steps, strict=True)
    )
    assert total["merged"] == own + refill["merged"]
    assert total["fused"] == own + sum(refill_bytes("fused", each, HIDDEN, HEAD_DIM) for _, each in steps)
    assert total["immediate"] >= total["merged"] >= total["fused"]


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(passes=PASSES, grouped=st.booleans(), prefetch=st.booleans(), lookahead=st.booleans())
@example(passes=(np.eye(4, dtype=bool)[None], *[ALL, NONE] * 4), grouped=False, prefetch=True, lookahead=True)
def test_early_fills_are_projections_too_and_shapes_trace_the_same(
    policy: str, passes: tuple[np.ndarray, ...], grouped: bool, prefetch: bool, lookahead: bool
) -> None:
    how = {"policy": policy, "prefetch": prefetch, "lookahead": lookahead}
    played = _play(grouped, list(passes), **how)
    _check_values(played)
    shape = _play(grouped, list(passes), exact=False, **how)
    assert shape.run.records() == played.run.records()
    assert shape.counts == played.counts
    counts = played.counts
    assert counts.prefetched_used <= counts.prefetched
    assert counts.looked_ahead_used <= counts.looked_ahead


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("lookahead", [False, True])
def test_the_dealer_is_asked_for_the_same_whatever_the_masks(policy: str, lookahead: bool) -> None:
    """Positions, kinds and shapes: what the dealer sees. Who it deals ahead for, it never hears of masks at all."""
    rng = np.random.default_rng(5)
    dealt = []
    for density in (0, 0.4, 1):
        passes = [rng.random((2, rows, HEADS)) < density for rows in (5, 1, 1, 1)]
        how = {"policy": policy, "prefetch": True, "lookahead": lookahead}
        ahead = _play(False, passes, **how)
        assert ahead.run.unused == 0
        asked = _play(False, passes, dealing=Dealing("on-demand"), **how)
        _check_values(asked)
        text = asked.run.names.text
        dealt.append(
            [(text(ask.path), text(ask.kind), ask.elements, ask.correction) for ask in asked.run.requests]
        )
    assert dealt[0] == dealt[1] == dealt[2]
    assert dealt[0]


def test_what_is_counted() -> None:
    """Two heads sleep for three tokens after the first, wake once, and sleep again; two are always active."""
    first, asleep = ALL, np.array([[[1, 1, 0, 0]]], bool)
    passes = [first, asleep, asleep, asleep, ALL, asleep]
    counts = _play(False, passes, policy="merged").counts
    assert counts == CacheCounts(
        hits=2 * (1 + 2 + 3 + 4 + 5) + 2 * 4 - 6,
        misses=6,
        refilled=6,
        refill_products=1,
        refilled_heads=2,
    )
    assert (counts.merged, counts.merged_heads) == (6, 3)
    each = _play(False, passes, policy="immediate").counts
    assert (each.refill_products, each.merged, each.merged_heads) == (6, 1, 1)
    assert CacheCounts().merged is None


def test_prefetch_and_its_use_are_counted() -> None:
    """In a prompt, entries after a head's last use cost nothing; the head that wakes up reads them."""
    prompt = np.array([[[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]]], bool)
    passes = [prompt, np.array([[[1, 1, 0, 0]]], bool)]
    without, with_it = (_play(False, passes, policy="merged", prefetch=way) for way in (False, True))
    assert (without.counts.misses, without.counts.prefetched) == (2, 0)
    # Heads 1 and 2 have two entries each at no cost; head 3 was never active: its columns are not sent.
    assert (with_it.counts.misses, with_it.counts.prefetched, with_it.counts.prefetched_used) == (0, 4, 2)
    assert with_it.run.bytes == without.run.bytes - 8 * HIDDEN * (2 + 2 * HEAD_DIM)
