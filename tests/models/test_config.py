from __future__ import annotations

from typing import Any

import pytest

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig, norm_names

OPT: dict[str, Any] = {
    "model_type": "opt",
    "activation_function": "relu",
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "ffn_dim": 24,
    "vocab_size": 32,
    "max_position_embeddings": 20,
}


def test_missing_flags_have_transformers_defaults() -> None:
    config = ModelConfig.from_hf(OPT, "here/config.json", "tiny")
    assert (config.name, config.tied, config.head_dim, config.kv_heads) == ("tiny", True, 8, 2)
    assert config.head_name == "embed"
    assert ModelConfig.from_hf(OPT | {"tie_word_embeddings": False}, "x").head_name == "lm_head"


@pytest.mark.parametrize(
    ("key", "value", "accepted"),
    [
        ("model_type", "gpt2", '"opt"'),
        ("activation_function", "gelu", '"relu"'),
        ("do_layer_norm_before", False, "only true"),
        ("enable_bias", False, "only true"),
        ("layer_norm_elementwise_affine", False, "only true"),
        ("_remove_final_layer_norm", True, "only false"),
        ("word_embed_proj_dim", 8, "hidden_size"),
        ("hidden_size", 0, "whole number"),
        ("hidden_size", True, "whole number"),
        ("num_attention_heads", 3, "divisor"),
        ("vocab_size", "32", "whole number"),
        ("tie_word_embeddings", 1, "true or false"),
        ("eos_token_id", 32, "0 to 31"),
        ("eos_token_id", [2, 3], "0 to 31"),
    ],
)
def test_unsupported_settings_name_file_key_value_and_choice(key: str, value: Any, accepted: str) -> None:
    with pytest.raises(InputError) as caught:
        ModelConfig.from_hf(OPT | {key: value}, "here/config.json")
    message = str(caught.value)
    assert all(part in message for part in ("here/config.json", key, repr(value), accepted)), message


@pytest.mark.parametrize("key", sorted(OPT))
def test_missing_key(key: str) -> None:
    with pytest.raises(InputError, match=f"{key}: read nothing"):
        ModelConfig.from_hf({k: v for k, v in OPT.items() if k != key}, "x")


def test_norm_names_follow_the_forward_pass() -> None:
    names = norm_names(ModelConfig.from_hf(OPT, "x"))
    assert names == (
        "layer0/attention/norm",
        "layer0/ffn/norm",
        "layer1/attention/norm",
        "layer1/ffn/norm",
        "final_norm",
    )
