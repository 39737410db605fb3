from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint, load_checkpoint
from comet_sim.models.demo import demo_folder, heldout, load_demo
from comet_sim.models.plain import PlainDecoder


def _reference(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(ids))[None]).logits[0].double().numpy()


@pytest.fixture(scope="module")
def demo() -> Checkpoint:
    return load_demo()


def test_demo_logits_and_greedy_tokens_equal_transformers(demo: Checkpoint) -> None:
    import torch
    from transformers import OPTForCausalLM

    model = OPTForCausalLM.from_pretrained(demo_folder(), dtype=torch.float64).eval()
    plain = PlainDecoder(demo.config, demo.weights)
    for window in (heldout().prose[0], heldout().code[0]):
        logits, _ = plain.forward(window)
        np.testing.assert_allclose(logits, _reference(model, window), atol=1e-9)
        prompt = torch.tensor(window[:16])[None]
        theirs = model.generate(prompt, max_new_tokens=6, min_new_tokens=6, do_sample=False)
        assert plain.generate(window[:16].tolist(), 6) == theirs[0, 16:].tolist()


@pytest.mark.parametrize("tied", [True, False])
def test_tiny_model_equals_transformers_in_float32(make_opt: Any, tmp_path: Path, tied: bool) -> None:
    """Random biases, norms and an untied head show what the trained demo's near-zero values may hide."""
    model = make_opt(tie_word_embeddings=tied)
    model.save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    ids = np.arange(20) * 7 % 32
    logits, _ = PlainDecoder(checkpoint.config, checkpoint.weights).forward(ids)
    np.testing.assert_allclose(logits, _reference(model, ids), atol=1e-4)


@pytest.mark.parametrize("cuts", [[1], [5, 6], list(range(1, 16))])
def test_state_continues_where_it_stopped(demo: Checkpoint, cuts: list[int]) -> None:
    plain = PlainDecoder(demo.config, demo.weights)
    ids = heldout().prose[1][:16]
    whole, _ = plain.forward(ids)
    state, parts = None, []
    for part in np.split(ids, cuts):
        logits, state = plain.forward(part, state)
        parts.append(logits)
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-10)
    assert state is not None
    assert state.length == 16


def test_record_receives_variances_and_masks(demo: Checkpoint) -> None:
    plain = PlainDecoder(demo.config, demo.weights)
    seen: dict[str, Any] = {}
    ids = heldout().code[2][:10]
    plain.forward(ids, record=seen.__setitem__)
    assert len(seen) == 9 + 4
    rows = demo.weights["embed"][ids] + demo.weights["positions"][2:12]
    np.testing.assert_allclose(
        seen["layer0/attention/norm/variance"], rows.astype(np.float64).var(axis=1), rtol=1e-5
    )
    assert seen["layer3/ffn/mask"].shape == (10, 640)
    assert 0.6 < 1 - seen["layer3/ffn/mask"].mean() < 0.99


def test_perplexity_of_a_uniform_model_is_its_vocabulary(demo: Checkpoint) -> None:
    flat = {name: np.zeros_like(weight) for name, weight in demo.weights.items()}
    assert PlainDecoder(demo.config, flat).perplexity(heldout().prose[:2]) == pytest.approx(2048)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([2048], "token id 2048: opt-demo has ids 0 to 2047"),
        ([3, -1], "token id -1"),
        ([], "at least one"),
        ([1.0], "whole number"),
        ([5] * 257, "257 tokens: opt-demo has 256 positions"),
    ],
)
def test_bad_token_ids(demo: Checkpoint, ids: list[Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        PlainDecoder(demo.config, demo.weights).forward(ids)


def test_generation_stops_at_the_last_position(demo: Checkpoint) -> None:
    plain = PlainDecoder(demo.config, demo.weights)
    assert len(plain.generate([5] * 255, 2)) == 2
    with pytest.raises(InputError, match="257 tokens"):
        plain.generate([5] * 255, 3)
