"""The plain decoder with skipping, against PlainDecoder and a direct computation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.plain import Ask, SkippingDecoder, all_active, by_part, in_order, true_masks
from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.config import ModelConfig, Rope
from comet_sim.models.demo import DEMO_NAMES, heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.tensors import shapes

_OPT = ModelConfig(
    architecture="opt", name="tiny", layers=2, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=24, vocab=32,
    max_positions=20,
)  # fmt: skip
_TINY = {
    "opt": _OPT,
    "gpt2": replace(_OPT, architecture="gpt2", activation="gelu_tanh", position_offset=0),
    # Grouped queries: two query heads share a key and value head.
    "llama": replace(
        _OPT, architecture="llama", heads=4, head_dim=4, norm="rmsnorm", rope=Rope(), gated=True,
        attention_bias=False, ffn_bias=False, tied=False,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=DEMO_NAMES)
def demo(request: pytest.FixtureRequest) -> Checkpoint:
    return load_demo(request.param)


@dataclass(frozen=True)
class Tiny:
    config: ModelConfig
    weights: dict[str, Any]


def tiny(family: str) -> Tiny:
    """Return a tiny model with random weights, biases far from zero."""
    config = _TINY[family]
    rng = np.random.default_rng(5)
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in shapes(config).items()}
    return Tiny(config, weights)


@pytest.mark.parametrize("source", [true_masks, all_active])
def test_true_neurons_and_all_heads_equal_the_plain_model(demo: Checkpoint, source: Any) -> None:
    plain = PlainDecoder(demo.config, demo.weights)
    skipping = SkippingDecoder(demo.config, demo.weights, by_part(ffn=source))
    ids = heldout().code[3][:24]
    np.testing.assert_array_equal(skipping.forward(ids)[0], plain.forward(ids)[0])
    assert skipping.generate(ids[:5].tolist(), 4) == plain.generate(ids[:5].tolist(), 4)


def test_true_neuron_masks_are_the_plain_models(demo: Checkpoint) -> None:
    seen: dict[str, Any] = {}
    asked: dict[tuple[str, int], Any] = {}
    ids = heldout().prose[3][:24]
    PlainDecoder(demo.config, demo.weights).forward(ids, record=seen.__setitem__)

    def observe(ask: Ask, mask: Any) -> None:
        assert mask is ask.truth
        asked[ask.part, ask.layer] = mask

    SkippingDecoder(demo.config, demo.weights, observe=observe).forward(ids)
    assert len(asked) == 2 * demo.config.layers
    for layer in range(demo.config.layers):
        np.testing.assert_array_equal(asked["ffn", layer], seen[f"layer{layer}/ffn/mask"])
        assert asked["heads", layer].all()  # without thresholds


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_skipped_heads_and_neurons_equal_weights_set_to_zero(kind: str) -> None:
    """A head skipped for every token is a zero block of the output projection; a neuron, a zero row."""
    checkpoint = tiny(kind)
    config = checkpoint.config
    heads = np.arange(config.heads) % 2 == 0
    neurons = np.arange(config.ffn) % 3 != 0

    def source(ask: Ask) -> Any:
        return np.broadcast_to(neurons if ask.part == "ffn" else heads, ask.truth.shape)

    cut = {name: np.array(weight) for name, weight in checkpoint.weights.items()}
    for i in range(config.layers):
        cut[f"layer{i}/attention/o/weight"][np.repeat(~heads, config.head_dim)] = 0
        cut[f"layer{i}/ffn/{'down' if config.gated else 'fc2'}/weight"][~neurons] = 0
    ids = np.arange(12) * 5 % 32
    found, _ = SkippingDecoder(config, checkpoint.weights, source).forward(ids)
    expected, _ = PlainDecoder(config, cut).forward(ids)
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert np.abs(found - PlainDecoder(config, checkpoint.weights).forward(ids)[0]).max() > 0.1


@pytest.mark.parametrize("kind", ["opt", "llama"])
def test_true_heads_are_those_whose_contribution_reaches_the_threshold(kind: str) -> None:
    checkpoint = tiny(kind)
    config = checkpoint.config
    ids = np.arange(9) * 7 % 32
    asks: list[Ask] = []
    SkippingDecoder(
        config, checkpoint.weights, all_active, head_thresholds=[0.0] * config.layers,
        observe=lambda ask, mask: asks.append(ask),
    ).forward(ids)  # fmt: skip
    assert all(ask.truth.all() for ask in asks if ask.part == "heads")
    # What one head adds to the first layer's attention output: the others' blocks set to zero.
    inputs = next(ask.inputs for ask in asks if ask.part == "heads")
    plain = PlainDecoder(config, checkpoint.weights)
    norms = []
    bias = checkpoint.weights.get("layer0/attention/o/bias", np.zeros(config.hidden))
    for head in range(config.heads):
        own = {name: np.array(weight) for name, weight in checkpoint.weights.items()}
        own["layer0/attention/o/weight"][np.repeat(np.arange(config.heads) != head, config.head_dim)] = 0
        added = PlainDecoder(config, own)._attention("layer0/attention", inputs, None)[0] - bias
        norms.append(np.linalg.norm(added, axis=1))
    middle = float(np.median(norms))
    asks.clear()
    SkippingDecoder(
        config, plain.weights, true_masks, head_thresholds=[middle] * config.layers,
        observe=lambda ask, mask: asks.append(ask),
    ).forward(ids)  # fmt: skip
    truth = next(ask.truth for ask in asks if ask.part == "heads")
    np.testing.assert_array_equal(truth, np.stack(norms, axis=1) >= middle)
    assert 0 < truth.sum() < truth.size


def test_a_skipped_head_keeps_keys_and_values_for_later_tokens() -> None:
    checkpoint = tiny("opt")

    def first_only(ask: Ask) -> Any:
        mask = np.ones_like(ask.truth)
        if ask.part == "heads" and ask.layer == 0:
            mask[:3] = False
        return mask

    ids = np.arange(8)
    skipping = SkippingDecoder(checkpoint.config, checkpoint.weights, first_only)
    _, state = skipping.forward(ids)
    _, plain_state = PlainDecoder(checkpoint.config, checkpoint.weights).forward(ids)
    np.testing.assert_array_equal(state.keys[0], plain_state.keys[0])
    np.testing.assert_array_equal(state.values[0], plain_state.values[0])
    assert np.abs(state.keys[1][:3] - plain_state.keys[1][:3]).max() > 1e-3


def test_recorded_masks_repeat_a_run(demo: Checkpoint) -> None:
    thresholds = demo.metadata.head_thresholds or (1.0,) * demo.config.layers
    recorded: list[Any] = []
    ids = heldout().prose[5][:20]
    first = SkippingDecoder(
        demo.config, demo.weights, head_thresholds=thresholds,
        observe=lambda ask, mask: recorded.append((ask.part, ask.layer, mask)),
    )  # fmt: skip
    logits, _ = first.forward(ids)
    again = SkippingDecoder(demo.config, demo.weights, in_order(recorded))
    np.testing.assert_array_equal(again.forward(ids)[0], logits)
    with pytest.raises(InputError, match=r"heads of layer 0, \(20, 8\), is wanted, none is left"):
        again.forward(ids)
    with pytest.raises(InputError, match=r"the next is heads of layer 0, \(20, 8\)"):
        SkippingDecoder(demo.config, demo.weights, in_order(recorded)).forward(ids[:4])


def test_other_activations_have_no_true_zeros() -> None:
    checkpoint = tiny("gpt2")
    ids = np.arange(6)
    found, _ = SkippingDecoder(checkpoint.config, checkpoint.weights, true_masks).forward(ids)
    np.testing.assert_array_equal(found, PlainDecoder(checkpoint.config, checkpoint.weights).forward(ids)[0])


def test_thresholds_are_one_a_layer(demo: Checkpoint) -> None:
    with pytest.raises(InputError, match="2 numbers for 4 layers"):
        SkippingDecoder(demo.config, demo.weights, head_thresholds=(1.0, 2.0))
