"""The dimensions of a decoder-only transformer, read from a transformers `config.json` or the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from comet_sim.errors import InputError

__all__ = ["ModelConfig", "norm_names"]


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's architecture and dimensions; dimensions are counts of elements, ids are token ids.

    `positions` tables hold `max_positions + position_offset` rows: position p reads row p + position_offset.
    """

    architecture: str
    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int
    activation: str = "relu"
    norm: str = "layernorm"
    norm_epsilon: float = 1e-5
    position_offset: int = 2
    tied: bool = True
    eos_id: int | None = None
    bos_id: int | None = None
    pad_id: int | None = None

    @property
    def parameters(self) -> int:
        """Number of parameters, a tied LM head counted once."""
        d, kv = self.hidden, self.kv_heads * self.head_dim
        inner = self.heads * self.head_dim
        attention = (d * inner + inner) + 2 * (d * kv + kv) + (inner * d + d)
        feed_forward = (d * self.ffn + self.ffn) + (self.ffn * d + d)
        norms = 2 * 2 * d
        embeddings = self.vocab * d * (1 if self.tied else 2)
        positions = (self.max_positions + self.position_offset) * d
        return embeddings + positions + self.layers * (attention + feed_forward + norms) + 2 * d

    @property
    def head_name(self) -> str:
        """Canonical name of the (vocab, hidden) matrix the LM head multiplies by."""
        return "embed" if self.tied else "lm_head"

    @classmethod
    def from_hf(cls, raw: Mapping[str, object], where: str, name: str | None = None) -> ModelConfig:
        """Read a parsed transformers `config.json`.

        `where` names the file in errors; `name` is the model's name here (default: `where`).
        Raises InputError naming the key, the value read and what is supported.
        """
        reader = _Reader(raw, where)
        architecture = reader.choice("model_type", tuple(_READERS))
        return _READERS[architecture](reader, name if name is not None else where)


def norm_names(config: ModelConfig) -> tuple[str, ...]:
    """Canonical names of the normalisations in the order a forward pass meets them."""
    inner = (f"layer{i}/{part}/norm" for i in range(config.layers) for part in ("attention", "ffn"))
    return (*inner, "final_norm")


class _Reader:
    """Typed access to one configuration file."""

    __slots__ = ("raw", "where")

    def __init__(self, raw: Mapping[str, object], where: str) -> None:
        self.raw = raw
        self.where = where

    def fail(self, key: str, accepted: str) -> InputError:
        read = repr(self.raw[key]) if key in self.raw else "nothing (the key is missing)"
        return InputError(f"{self.where}: {key}: read {read}, supported: {accepted}")

    def choice(self, key: str, accepted: tuple[str, ...]) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str) or value not in accepted:
            raise self.fail(key, " or ".join(f'"{item}"' for item in accepted))
        return value

    def count(self, key: str) -> int:
        value = self.raw.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.fail(key, "a whole number from 1")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.raw.get(key, default)
        if not isinstance(value, bool):
            raise self.fail(key, "true or false")
        return value

    def require_flag(self, key: str, value: bool) -> None:
        if self.flag(key, value) is not value:
            raise self.fail(key, "only " + ("true" if value else "false"))

    def token_id(self, key: str, vocab: int) -> int | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab:
            raise self.fail(key, f"null or a token id from 0 to {vocab - 1}")
        return value


def _read_opt(reader: _Reader, name: str) -> ModelConfig:
    """OPT in its pre-norm form with biases and affine norms; missing flags have transformers' defaults."""
    reader.require_flag("do_layer_norm_before", True)
    reader.require_flag("enable_bias", True)
    reader.require_flag("layer_norm_elementwise_affine", True)
    reader.require_flag("_remove_final_layer_norm", False)
    hidden, heads = reader.count("hidden_size"), reader.count("num_attention_heads")
    if hidden % heads:
        raise reader.fail("num_attention_heads", f"a divisor of hidden_size {hidden}")
    # Transformers projects the embeddings in and out whenever this differs from the hidden size.
    if reader.raw.get("word_embed_proj_dim") is not None and reader.count("word_embed_proj_dim") != hidden:
        raise reader.fail("word_embed_proj_dim", f"only hidden_size, here {hidden}")
    vocab = reader.count("vocab_size")
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
        activation=reader.choice("activation_function", ("relu",)),
        tied=reader.flag("tie_word_embeddings", True),
        eos_id=reader.token_id("eos_token_id", vocab),
        bos_id=reader.token_id("bos_token_id", vocab),
        pad_id=reader.token_id("pad_token_id", vocab),
    )


# A new architecture adds its reader here and its tensor names in checkpoint.py.
_READERS: Mapping[str, Callable[[_Reader, str], ModelConfig]] = MappingProxyType({"opt": _read_opt})
