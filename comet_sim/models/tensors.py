"""The weights of a model: their canonical names and shapes, and where transformers keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from comet_sim.models.config import ModelConfig

__all__ = ["Stored", "hf_tensors", "is_buffer", "shapes", "without_prefix"]

_PREFIXES = ("model.decoder.", "decoder.", "transformer.", "model.")
# Constants that older checkpoints stored: causal masks, rotary frequencies.
_BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq")


@dataclass(frozen=True, slots=True)
class Stored:
    """What one stored tensor holds: one weight, or several side by side along the outputs.

    `transposed`: a matrix stored as (out, in), which is (in, out) here.
    """

    parts: tuple[str, ...]
    transposed: bool = False


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of every weight under its canonical name, in the order a forward pass uses them."""
    d, inner, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    result: dict[str, tuple[int, ...]] = {"embed": (config.vocab, d)}
    if config.rope is None:
        result["positions"] = (config.max_positions + config.position_offset, d)

    def norm(name: str) -> None:
        result[f"{name}/weight"] = (d,)
        if config.norm == "layernorm":
            result[f"{name}/bias"] = (d,)

    def linear(name: str, rows: int, columns: int, biased: bool) -> None:
        result[f"{name}/weight"] = (rows, columns)
        if biased:
            result[f"{name}/bias"] = (columns,)

    first, last = (("gate", "up"), "down") if config.gated else (("fc1",), "fc2")
    for i in range(config.layers):
        norm(f"layer{i}/attention/norm")
        for part, width in (("q", inner), ("k", kv), ("v", kv)):
            linear(f"layer{i}/attention/{part}", d, width, config.attention_bias)
        linear(f"layer{i}/attention/o", inner, d, config.attention_bias)
        norm(f"layer{i}/ffn/norm")
        for part in first:
            linear(f"layer{i}/ffn/{part}", d, config.ffn, config.ffn_bias)
        linear(f"layer{i}/ffn/{last}", config.ffn, d, config.ffn_bias)
    norm("final_norm")
    if not config.tied:
        result["lm_head"] = (config.vocab, d)
    return result


def without_prefix(stored: str) -> str:
    """Drop the prefix that depends on which transformers class wrote a checkpoint."""
    return stored.removeprefix(next((p for p in _PREFIXES if stored.startswith(p)), ""))


def is_buffer(stored: str) -> bool:
    """Tell whether a stored tensor is a constant that follows from the configuration."""
    return stored.endswith(_BUFFERS)


# Per architecture: tables outside the layers; the layers' prefix; modules inside a layer, and what they hold.
_TABLES = {
    "opt": {"embed_tokens.weight": "embed", "embed_positions.weight": "positions"},
    "gpt2": {"wte.weight": "embed", "wpe.weight": "positions"},
    "llama": {"embed_tokens.weight": "embed"},
}
_FINAL_NORM = {"opt": "final_layer_norm", "gpt2": "ln_f", "llama": "norm"}
_LAYERS = {"opt": "layers", "gpt2": "h", "llama": "layers"}
_MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "opt": {
        "self_attn_layer_norm": ("attention/norm",),
        "self_attn.q_proj": ("attention/q",),
        "self_attn.k_proj": ("attention/k",),
        "self_attn.v_proj": ("attention/v",),
        "self_attn.out_proj": ("attention/o",),
        "final_layer_norm": ("ffn/norm",),
        "fc1": ("ffn/fc1",),
        "fc2": ("ffn/fc2",),
    },
    "gpt2": {
        "ln_1": ("attention/norm",),
        "attn.c_attn": ("attention/q", "attention/k", "attention/v"),
        "attn.c_proj": ("attention/o",),
        "ln_2": ("ffn/norm",),
        "mlp.c_fc": ("ffn/fc1",),
        "mlp.c_proj": ("ffn/fc2",),
    },
    "llama": {
        "input_layernorm": ("attention/norm",),
        "self_attn.q_proj": ("attention/q",),
        "self_attn.k_proj": ("attention/k",),
        "self_attn.v_proj": ("attention/v",),
        "self_attn.o_proj": ("attention/o",),
        "post_attention_layernorm": ("ffn/norm",),
        "mlp.gate_proj": ("ffn/gate",),
        "mlp.up_proj": ("ffn/up",),
        "mlp.down_proj": ("ffn/down",),
    },
}


def hf_tensors(config: ModelConfig) -> dict[str, Stored]:
    """Transformers' tensor names, without prefix, and what each holds."""
    kind, forms = config.architecture, shapes(config)
    found = {theirs: Stored((ours,)) for theirs, ours in _TABLES[kind].items()}

    def module(theirs: str, ours: tuple[str, ...]) -> None:
        for part in ("weight", "bias"):
            names = tuple(f"{name}/{part}" for name in ours)
            if names[0] in forms:
                # GPT-2's linear layers are stored as (in, out) already.
                found[f"{theirs}.{part}"] = Stored(names, len(forms[names[0]]) == 2 and kind != "gpt2")

    for i in range(config.layers):
        for theirs, ours in _MODULES[kind].items():
            module(f"{_LAYERS[kind]}.{i}.{theirs}", tuple(f"layer{i}/{name}" for name in ours))
    module(_FINAL_NORM[kind], ("final_norm",))
    if not config.tied:
        found["lm_head.weight"] = Stored(("lm_head",))
    return found
