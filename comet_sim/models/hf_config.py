"""Reading a transformers `config.json`: OPT, GPT-2 and Llama; whatever else is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig, Rope

__all__ = ["read_hf_config"]

# Transformers' names of activation functions to ours.
_ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {
        "relu": "relu",
        "gelu": "gelu",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_pytorch_tanh": "gelu_tanh",
        "silu": "silu",
        "swish": "silu",
    }
)


def read_hf_config(raw: Mapping[str, object], where: str, name: str | None = None) -> ModelConfig:
    """Read a parsed transformers `config.json`; missing keys have transformers' defaults where it has safe ones.

    `where` names the file in errors; `name` is the model's name here (default: `where`).
    Raises InputError naming the key, the value read and what is supported.
    """
    reader = _Reader(raw, where)
    architecture = reader.choice("model_type", tuple(_READERS))
    if raw.get("quantization_config") is not None:
        raise reader.fail(
            "quantization_config", "only null: save the weights as float16, bfloat16 or float32"
        )
    return _READERS[architecture](reader, name if name is not None else where)


class _Reader:
    """Typed access to one configuration file, or to a table in it."""

    __slots__ = ("raw", "where")

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self.raw = raw
        self.where = where

    def fail(self, key: str, accepted: str) -> InputError:
        read = repr(self.raw[key]) if key in self.raw else "nothing (the key is missing)"
        return InputError(f"{self.where}: {key}: read {read}, supported: {accepted}")

    def choice(self, key: str, accepted: tuple[str, ...], default: str | None = None) -> str:
        value = self.raw.get(key, default)
        if not isinstance(value, str) or value not in accepted:
            raise self.fail(key, " or ".join(f'"{item}"' for item in accepted))
        return value

    def count(self, key: str, default: int | None = None) -> int:
        value = self.raw.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.fail(key, "a whole number from 1")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.raw.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            raise self.fail(key, "a number above 0")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def require_flag(self, key: str, value: bool) -> None:
        if self.flag(key, value) is not value:
            raise self.fail(key, "only " + ("true" if value else "false"))

    def divisor(self, key: str, total: int, of: str, default: int | None = None) -> int:
        value = self.count(key, default)
        if total % value:
            raise self.fail(key, f"a divisor of {of} {total}")
        return value

    def table(self, key: str) -> _Reader | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail(key, "null or an object")
        return _Reader(value, f"{self.where}: {key}")

    def token_id(self, key: str, vocab: int) -> int | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab:
            raise self.fail(key, f"null or a token id from 0 to {vocab - 1}")
        return value

    def end_token(self, vocab: int) -> int | None:
        """Return the end-of-sequence id; of a list, as Llama 3 has, the first."""
        value = self.raw.get("eos_token_id")
        if isinstance(value, list) and value:
            return _Reader({"eos_token_id": value[0]}, self.where).token_id("eos_token_id", vocab)
        return self.token_id("eos_token_id", vocab)


def _read_opt(reader: _Reader, name: str) -> ModelConfig:
    """OPT in its pre-norm form with affine norms."""
    reader.require_flag("do_layer_norm_before", True)
    reader.require_flag("layer_norm_elementwise_affine", True)
    reader.require_flag("_remove_final_layer_norm", False)
    hidden = reader.count("hidden_size")
    heads = reader.divisor("num_attention_heads", hidden, "hidden_size")
    # Transformers projects the embeddings in and out whenever this differs from the hidden size.
    if reader.raw.get("word_embed_proj_dim") is not None and reader.count("word_embed_proj_dim") != hidden:
        raise reader.fail("word_embed_proj_dim", f"only hidden_size, here {hidden}")
    vocab = reader.count("vocab_size")
    biased = reader.flag("enable_bias", True)
    return ModelConfig(
        architecture="opt",
        name=name,
        layers=reader.count("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=reader.count("ffn_dim"),
        vocab=vocab,
        max_positions=reader.count("max_position_embeddings"),
        activation=_ACTIVATIONS[reader.choice("activation_function", tuple(_ACTIVATIONS), "relu")],
        attention_bias=biased,
        ffn_bias=biased,
        tied=reader.flag("tie_word_embeddings", True),
        eos_id=reader.end_token(vocab),
    )


def _read_gpt2(reader: _Reader, name: str) -> ModelConfig:
    """GPT-2: learned positions without an offset, biases everywhere."""
    reader.require_flag("scale_attn_weights", True)
    reader.require_flag("scale_attn_by_inverse_layer_idx", False)
    reader.require_flag("add_cross_attention", False)
    hidden = reader.count("n_embd")
    heads = reader.divisor("n_head", hidden, "n_embd")
    vocab = reader.count("vocab_size")
    return ModelConfig(
        architecture="gpt2",
        name=name,
        layers=reader.count("n_layer"),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=reader.count("n_inner", 4 * hidden),
        vocab=vocab,
        max_positions=reader.count("n_positions"),
        activation=_ACTIVATIONS[reader.choice("activation_function", tuple(_ACTIVATIONS), "gelu_new")],
        norm_epsilon=reader.number("layer_norm_epsilon", 1e-5),
        position_offset=0,
        tied=reader.flag("tie_word_embeddings", True),
        eos_id=reader.end_token(vocab),
    )


def _read_llama(reader: _Reader, name: str) -> ModelConfig:
    """Llama: RMSNorm, rotary positions, gated feed-forward, grouped-query attention, biases if asked for."""
    hidden, heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    if reader.raw.get("head_dim") is None:
        reader.divisor("num_attention_heads", hidden, "hidden_size")
    head_dim = reader.count("head_dim", hidden // heads)
    if head_dim % 2:
        raise reader.fail("head_dim", "an even number, rotary positions turn pairs")
    kv_heads = reader.divisor("num_key_value_heads", heads, "num_attention_heads", heads)
    vocab = reader.count("vocab_size")
    positions = reader.count("max_position_embeddings")
    return ModelConfig(
        architecture="llama",
        name=name,
        layers=reader.count("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=reader.count("intermediate_size"),
        vocab=vocab,
        max_positions=positions,
        activation=_ACTIVATIONS[reader.choice("hidden_act", tuple(_ACTIVATIONS), "silu")],
        norm="rmsnorm",
        norm_epsilon=reader.number("rms_norm_eps", 1e-6),
        position_offset=0,
        rope=_read_rope(reader, positions),
        gated=True,
        attention_bias=reader.flag("attention_bias", False),
        ffn_bias=reader.flag("mlp_bias", False),
        tied=reader.flag("tie_word_embeddings", False),
        eos_id=reader.end_token(vocab),
    )


def _read_rope(reader: _Reader, positions: int) -> Rope:
    """Rotary settings: in `rope_parameters`, or as older files have them, `rope_theta` and `rope_scaling`."""
    table = reader.table("rope_parameters") or reader.table("rope_scaling")
    theta = reader.number("rope_theta", 10000.0)
    for place in (reader, table):
        if place is not None and place.number("partial_rotary_factor", 1.0) != 1.0:
            raise place.fail("partial_rotary_factor", "only 1, all dimensions of a head turn")
    if table is None:
        return Rope(theta)
    theta = table.number("rope_theta", theta)
    key = "rope_type" if "rope_type" in table.raw or "type" not in table.raw else "type"
    kind = table.choice(key, ("default", "linear", "llama3"), "default")
    if kind == "default":
        return Rope(theta)
    if kind == "linear":
        return Rope(theta, "linear", table.number("factor"))
    low, high = table.number("low_freq_factor"), table.number("high_freq_factor")
    if high <= low:
        raise table.fail("high_freq_factor", f"a number above low_freq_factor {low:g}")
    return Rope(
        theta,
        "llama3",
        table.number("factor"),
        low,
        high,
        table.count("original_max_position_embeddings", positions),
    )


# A new architecture adds its reader here and its tensor names in tensors.py.
_READERS: Mapping[str, Callable[[_Reader, str], ModelConfig]] = MappingProxyType(
    {"opt": _read_opt, "gpt2": _read_gpt2, "llama": _read_llama}
)
