"""Tiny random transformers models of every architecture, saved in the forms checkpoints come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# What each architecture's configuration calls the dimensions of a tiny model.
DIMENSIONS: dict[str, dict[str, Any]] = {
    "opt": {
        "hidden_size": 16,
        "word_embed_proj_dim": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "ffn_dim": 24,
        "vocab_size": 32,
        "max_position_embeddings": 20,
    },
    "gpt2": {"n_embd": 16, "n_head": 2, "n_layer": 2, "n_inner": 24, "vocab_size": 32, "n_positions": 20},
    "llama": {
        "hidden_size": 16,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 24,
        "vocab_size": 32,
        "max_position_embeddings": 20,
    },
}


@pytest.fixture(scope="session")
def make_model() -> Any:
    """Build a tiny model with random weights far from their initial zeros and ones."""

    def build(kind: str, spread: float = 0.5, **changes: Any) -> Any:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        ids = {"bos_token_id": 1, "eos_token_id": 2}
        config = AutoConfig.for_model(kind, **(DIMENSIONS[kind] | ids | changes))
        torch.manual_seed(5)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape) * spread)
        return model

    return build


@pytest.fixture(scope="session")
def make_opt(make_model: Any) -> Any:
    """Build a tiny OPT."""
    return lambda **changes: make_model("opt", **changes)


@pytest.fixture(scope="session")
def saved_opt(make_opt: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole float32 checkpoint. Session-wide: tests copy it before damaging it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_opt().save_pretrained(folder)
    return folder
