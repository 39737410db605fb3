"""Every architecture: the plain model equals transformers, and the private one the plain model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from comet_sim.baselines import SUITES
from comet_sim.errors import InputError
from comet_sim.models.cache import KVCache
from comet_sim.models.calibrate import calibrate
from comet_sim.models.checkpoint import Checkpoint, load_checkpoint
from comet_sim.models.decoder import Layout, PrivateDecoder
from comet_sim.models.plain import PlainDecoder, activate
from comet_sim.models.tensors import shapes
from comet_sim.testing import Integers, run_protocol

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "opt, ReLU": ("opt", {}),
    "opt, GELU": ("opt", {"activation_function": "gelu"}),
    "opt, no biases": ("opt", {"enable_bias": False}),
    "gpt2, GELU by tanh": ("gpt2", {}),
    "gpt2, own head, 4d wide": ("gpt2", {"tie_word_embeddings": False, "n_inner": None}),
    "llama, SiLU, grouped queries": ("llama", {}),
    "llama, ReGLU, tied, one K/V head": (
        "llama",
        {"hidden_act": "relu", "tie_word_embeddings": True, "num_key_value_heads": 1},
    ),
    "llama, heads wider than d, biases": (
        "llama",
        {"head_dim": 6, "attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4},
    ),
    "llama, linear scaling": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}},
    ),
    "llama, llama3 scaling": ("llama", {"rope_parameters": LLAMA3}),
}
IDS = np.arange(20) * 7 % 32


def reference(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(ids))[None]).logits[0].double().numpy()


@pytest.mark.parametrize("name", MODELS)
def test_plain_logits_equal_transformers(make_model: Any, tmp_path: Path, name: str) -> None:
    """Random biases, norms and heads show what a trained model's near-zero values may hide."""
    kind, changes = MODELS[name]
    model = make_model(kind, **changes)
    model.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    config = checkpoint.config
    assert {k: v.shape for k, v in checkpoint.weights.items()} == shapes(config)
    assert sum(w.size for w in checkpoint.weights.values()) == config.parameters
    assert config.parameters == model.num_parameters()
    plain = PlainDecoder(config, checkpoint.weights)
    logits, _ = plain.forward(IDS)
    np.testing.assert_allclose(logits, reference(model, IDS), atol=1e-4)
    first, state = plain.forward(IDS[:7])
    second, _ = plain.forward(IDS[7:], state)
    np.testing.assert_allclose(np.concatenate((first, second)), logits, atol=1e-9)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "silu", "gelu_pytorch_tanh"])
def test_activations_equal_transformers(name: str) -> None:
    import torch
    from transformers.activations import ACT2FN

    from comet_sim.models.hf_config import read_hf_config

    config = {"model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_layer": 1, "vocab_size": 8, "n_positions": 8}
    function = read_hf_config(config | {"activation_function": name}, "x").activation
    x = np.linspace(-6, 6, 101)
    np.testing.assert_allclose(activate(function, x), ACT2FN[name](torch.tensor(x)).numpy(), atol=1e-12)
    with pytest.raises(InputError, match="'sine'"):
        activate("sine", x)


def test_published_gpt2_files_with_causal_masks_load(make_model: Any, tmp_path: Path) -> None:
    """The published GPT-2 files have no prefix and store each layer's causal mask."""
    make_model("gpt2").save_pretrained(tmp_path)
    expected = load_checkpoint(tmp_path).weights
    stored = load_file(tmp_path / "model.safetensors")
    stored = {name.removeprefix("transformer."): value for name, value in stored.items()}
    stored["h.0.attn.bias"] = np.ones((1, 1, 20, 20), np.float32)
    save_file(stored, tmp_path / "model.safetensors")
    weights = load_checkpoint(tmp_path).weights
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)


# -- private ------------------------------------------------------------------------------------------------

PROMPT, NEXT = IDS[:6], 5


def private(
    checkpoint: Checkpoint, layout: Layout, suite: str = "crypten-accurate", exact: bool = True
) -> Any:
    """Run a prompt pass and a decode step of the private model; the outputs are both passes' logits."""
    config = checkpoint.config
    plain = PlainDecoder(config, checkpoint.weights)
    exponents = calibrate(plain, [[*PROMPT, NEXT]]).exponents
    onehot = np.eye(config.vocab, dtype=np.int64)

    async def program(s: Any, prompt: Any, token: Any, *shares: Any) -> Any:
        weights = dict(zip(shapes(config), shares, strict=True))
        model = PrivateDecoder(config, weights, exponents, SUITES[suite], layout)
        cache: KVCache = model.new_cache()
        first = await model.forward(s, prompt, cache)
        return first, await model.forward(s, token, cache)

    inputs = (checkpoint.weights[name] for name in shapes(config))
    return run_protocol(program, Integers(onehot[PROMPT]), Integers(onehot[[NEXT]]), *inputs, exact=exact)


@pytest.fixture(scope="session")
def trained_like(make_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Checkpoint of a tiny model with logits of about the demo models' size, and transformers' logits."""

    def build(name: str) -> tuple[Checkpoint, Any]:
        kind, changes = MODELS[name]
        model = make_model(kind, spread=0.4, **changes)
        folder = tmp_path_factory.mktemp("checkpoint")
        model.save_pretrained(folder)
        return load_checkpoint(folder), reference(model, [*PROMPT, NEXT])[-2:]

    return build


@pytest.mark.parametrize("name", MODELS)
def test_private_logits_equal_transformers_and_shapes_leave_the_same_trace(
    trained_like: Any, name: str
) -> None:
    """Within 0.01 where logits reach 1.2 to 3.6: what fixed point and the approximations of the suite leave."""
    checkpoint, expected = trained_like(name)
    run = private(checkpoint, Layout())
    logits = np.concatenate(run.values)
    assert 1 < np.abs(expected).max() < 10
    np.testing.assert_allclose(logits, expected, atol=0.01)
    assert private(checkpoint, Layout(), exact=False).records() == run.records()


LAYOUTS = (
    Layout(qkv="sequence", ffn="sequence", final_norm="all"),
    Layout(qkv="parallel", ffn="parallel"),
    Layout(weights="reuse", cache="reuse"),
)


@pytest.mark.parametrize("layout", LAYOUTS, ids=["sequence", "parallel", "reuse"])
def test_layouts_change_traffic_and_not_the_logits(trained_like: Any, layout: Layout) -> None:
    checkpoint, expected = trained_like("llama, SiLU, grouped queries")
    run = private(checkpoint, layout)
    np.testing.assert_allclose(np.concatenate(run.values), expected, atol=0.01)
    assert private(checkpoint, layout, exact=False).records() == run.records()
