"""A tiny random OPT in transformers, saved in the forms checkpoints come in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def make_opt() -> Any:
    """Build a tiny OPT with random weights far from their initial zeros and ones."""

    def build(**changes: Any) -> Any:
        import torch
        from transformers import OPTConfig, OPTForCausalLM

        settings: dict[str, Any] = {
            "hidden_size": 16,
            "word_embed_proj_dim": 16,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "ffn_dim": 24,
            "vocab_size": 32,
            "max_position_embeddings": 20,
        }
        torch.manual_seed(5)
        model = OPTForCausalLM(OPTConfig(**(settings | changes))).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape) * 0.5)
        return model

    return build


@pytest.fixture(scope="session")
def saved_opt(make_opt: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole float32 checkpoint. Session-wide: tests copy it before damaging it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    make_opt().save_pretrained(folder)
    return folder
