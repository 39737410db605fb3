from __future__ import annotations

from typing import Any

import pytest

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig, Rope, norm_names
from comet_sim.models.hf_config import read_hf_config

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
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 16,
    "n_head": 2,
    "n_layer": 2,
    "vocab_size": 32,
    "n_positions": 20,
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
    "vocab_size": 32,
    "max_position_embeddings": 20,
}
SCALED: dict[str, Any] = {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}


def llama(**changes: Any) -> ModelConfig:
    return read_hf_config(LLAMA | changes, "x")


def test_missing_keys_have_transformers_defaults() -> None:
    config = read_hf_config(OPT, "here/config.json", "tiny")
    assert (config.name, config.tied, config.head_dim, config.kv_heads) == ("tiny", True, 8, 2)
    assert config.head_name == "embed"
    assert read_hf_config(OPT | {"tie_word_embeddings": False}, "x").head_name == "lm_head"
    gpt2 = read_hf_config(GPT2, "x")
    assert (gpt2.ffn, gpt2.activation, gpt2.position_offset, gpt2.tied) == (64, "gelu_tanh", 0, True)
    config = llama()
    assert (config.kv_heads, config.head_dim, config.activation, config.tied) == (4, 4, "silu", False)
    assert (config.norm, config.norm_epsilon, config.rope) == ("rmsnorm", 1e-6, Rope(10000.0))


def test_rope_is_read_where_old_and_new_files_keep_it() -> None:
    linear = {"type": "linear", "factor": 2.0}
    assert llama(rope_theta=500.0, rope_scaling=linear).rope == Rope(500.0, "linear", 2.0)
    new = {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}
    assert llama(rope_parameters=new).rope == Rope(500.0, "linear", 2.0)
    assert llama(rope_theta=9.0, rope_scaling=None).rope == Rope(9.0)
    assert llama(rope_scaling=SCALED).rope == Rope(10000.0, "llama3", 8.0, 1.0, 4.0, 20)


def test_a_list_of_end_tokens_gives_the_first() -> None:
    assert llama(eos_token_id=[7, 9]).eos_id == 7


@pytest.mark.parametrize(
    ("base", "key", "value", "accepted"),
    [
        (OPT, "model_type", "mamba", '"opt" or "gpt2" or "llama"'),
        (OPT, "activation_function", "sine", '"relu"'),
        (OPT, "do_layer_norm_before", False, "only true"),
        (OPT, "layer_norm_elementwise_affine", False, "only true"),
        (OPT, "_remove_final_layer_norm", True, "only false"),
        (OPT, "word_embed_proj_dim", 8, "hidden_size"),
        (OPT, "hidden_size", 0, "whole number"),
        (OPT, "hidden_size", True, "whole number"),
        (OPT, "num_attention_heads", 3, "divisor"),
        (OPT, "vocab_size", "32", "whole number"),
        (OPT, "tie_word_embeddings", 1, "true or false"),
        (OPT, "eos_token_id", 32, "0 to 31"),
        (OPT, "eos_token_id", [32, 3], "0 to 31"),
        (GPT2, "scale_attn_weights", False, "only true"),
        (GPT2, "scale_attn_by_inverse_layer_idx", True, "only false"),
        (GPT2, "add_cross_attention", True, "only false"),
        (GPT2, "layer_norm_epsilon", 0, "above 0"),
        (LLAMA, "num_attention_heads", 3, "divisor"),
        (LLAMA, "num_key_value_heads", 3, "divisor"),
        (LLAMA, "head_dim", 5, "even"),
        (LLAMA, "hidden_act", "tanh", '"silu"'),
        (LLAMA, "rms_norm_eps", "1e-6", "above 0"),
        (LLAMA, "rope_scaling", "linear", "an object"),
    ],
)
def test_unsupported_settings_name_file_key_value_and_choice(
    base: dict[str, Any], key: str, value: Any, accepted: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_hf_config(base | {key: value}, "here/config.json")
    shown = value[0] if isinstance(value, list) else value
    message = str(caught.value)
    assert all(part in message for part in ("here/config.json", key, repr(shown), accepted)), message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rope_type": "yarn"}, "rope_type: read 'yarn'"),
        ({"type": "dynamic"}, "type: read 'dynamic'"),
        ({"factor": 0}, "factor: read 0"),
        ({"low_freq_factor": None}, "low_freq_factor"),
        ({"high_freq_factor": 1}, "above low_freq_factor"),
        ({"low_freq_factor": float("nan")}, "low_freq_factor: read nan"),
    ],
)
def test_unsupported_rope_scaling(change: dict[str, Any], said: str) -> None:
    table = SCALED | change
    if "type" in change:
        del table["rope_type"]
    with pytest.raises(InputError, match=f"x: rope_scaling: .*{said}"):
        llama(rope_scaling=table)


@pytest.mark.parametrize(
    ("base", "key"),
    [(base, key) for base in (OPT, GPT2, LLAMA) for key in sorted(base) if key != "model_type"],
)
def test_missing_key(base: dict[str, Any], key: str) -> None:
    raw = {k: v for k, v in base.items() if k != key}
    if key == "activation_function":
        assert read_hf_config(raw, "x").activation == "relu"
        return
    with pytest.raises(InputError, match=f"{key}: read nothing"):
        read_hf_config(raw, "x")


def test_missing_model_type() -> None:
    with pytest.raises(InputError, match="model_type: read nothing"):
        read_hf_config({}, "x")


def test_quantized_weights_are_refused() -> None:
    quantized = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    with pytest.raises(InputError, match=r"here: quantization_config: read .*gptq.*supported: only null"):
        read_hf_config(LLAMA | quantized, "here")
    assert read_hf_config(LLAMA | {"quantization_config": None}, "here") == read_hf_config(LLAMA, "here")


def test_norm_names_follow_the_forward_pass() -> None:
    names = norm_names(read_hf_config(OPT, "x"))
    assert names == (
        "layer0/attention/norm",
        "layer0/ffn/norm",
        "layer1/attention/norm",
        "layer1/ffn/norm",
        "final_norm",
    )
