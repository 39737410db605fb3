"""The architecture and dimensions of a decoder-only transformer, whatever family it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ModelConfig", "Rope", "norm_names"]


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions: how fast each pair of head dimensions turns with the position.

    Pair i turns by theta^(-2i / head_dim) radians a position. `linear` divides that by `factor`. `llama3`
    does so for pairs that turn less than `low_turns` times in `original_positions`, leaves those that turn
    more than `high_turns` times, and goes from one to the other between (Llama 3.1).
    """

    theta: float = 10000.0
    scaling: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_turns: float = 1.0
    high_turns: float = 4.0
    original_positions: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model's architecture and dimensions; dimensions are counts of elements, ids are token ids.

    `positions` tables (absent with `rope`) hold `max_positions + position_offset` rows: position p reads row
    p + position_offset. A `gated` feed-forward is down(act(gate(x)) * up(x)), a plain one fc2(act(fc1(x))).
    `activation` is one of the names in `comet_sim.mpc.suite.ACTIVATIONS`.
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
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    norm_epsilon: float = 1e-5
    position_offset: int = 2
    rope: Rope | None = None
    gated: bool = False
    attention_bias: bool = True
    ffn_bias: bool = True
    tied: bool = True
    eos_id: int | None = None

    @property
    def parameters(self) -> int:
        """Number of parameters, a tied LM head counted once."""
        d, kv = self.hidden, self.kv_heads * self.head_dim
        inner = self.heads * self.head_dim
        attention = 2 * d * inner + 2 * d * kv
        if self.attention_bias:
            attention += inner + 2 * kv + d
        wide = 2 if self.gated else 1
        feed_forward = (wide + 1) * d * self.ffn
        if self.ffn_bias:
            feed_forward += wide * self.ffn + d
        norm = d if self.norm == "rmsnorm" else 2 * d
        embeddings = self.vocab * d * (1 if self.tied else 2)
        positions = 0 if self.rope else (self.max_positions + self.position_offset) * d
        return embeddings + positions + self.layers * (attention + feed_forward + 2 * norm) + norm

    @property
    def head_name(self) -> str:
        """Canonical name of the (vocab, hidden) matrix the LM head multiplies by."""
        return "embed" if self.tied else "lm_head"


def norm_names(config: ModelConfig) -> tuple[str, ...]:
    """Canonical names of the normalisations in the order a forward pass meets them."""
    inner = (f"layer{i}/{part}/norm" for i in range(config.layers) for part in ("attention", "ffn"))
    return (*inner, "final_norm")
