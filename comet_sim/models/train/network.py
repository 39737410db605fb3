"""The transformers model of a recipe, and the modules that sparsity hooks into."""

from __future__ import annotations

from typing import Any

from comet_sim.models.train.recipe import Recipe
from comet_sim.models.train.tokens import SPECIAL

__all__ = ["build_model", "sparse_modules"]


def build_model(recipe: Recipe, vocab: int) -> Any:
    """Return an untrained transformers model; torch's random state decides its weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig, OPTConfig

    builder: Any = AutoModelForCausalLM
    common: dict[str, Any] = {
        "vocab_size": vocab,
        "hidden_size": recipe.hidden,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "max_position_embeddings": recipe.positions,
        "pad_token_id": SPECIAL.index("<pad>"),
        "bos_token_id": SPECIAL.index("<s>"),
        "eos_token_id": SPECIAL.index("</s>"),
        "tie_word_embeddings": True,
    }
    config: Any
    if recipe.architecture == "opt":
        config = OPTConfig(
            **common,
            ffn_dim=recipe.ffn,
            word_embed_proj_dim=recipe.hidden,
            dropout=0.0,
            activation_function="relu",
        )
    else:
        config = LlamaConfig(
            **common, intermediate_size=recipe.ffn, num_key_value_heads=recipe.heads, hidden_act="relu"
        )
    return builder.from_config(config)


def sparse_modules(model: Any) -> tuple[list[Any], list[Any]]:
    """Return, layer by layer, the activation functions and the attention's output projections."""
    if model.config.model_type == "opt":
        layers = model.model.decoder.layers
        return [layer.activation_fn for layer in layers], [layer.self_attn.out_proj for layer in layers]
    layers = model.model.layers
    return [layer.mlp.act_fn for layer in layers], [layer.self_attn.o_proj for layer in layers]
