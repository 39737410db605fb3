"""Secure indexing: masks are opened only after a secret reordering, so that plain indices may be used after it.

*Columns* (neurons, heads): one secret order acts on every weight that has that axis, so predicted bits come out in
it and need no shuffle of their own. *Rows* (the tokens of a feed-forward call): bits and inputs are put into a
fresh order together, and the result is put back. Source: paper (shuffle by a permutation split between the
servers before opening); which order lasts how long is a reconstruction, so are its leaks in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.settings import CometSettings
from comet_sim.models.config import ModelConfig
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle

__all__ = [
    "Call",
    "Part",
    "column_order",
    "open_bits",
    "ordered_axes",
    "row_order",
    "shuffle_weights",
    "why_opened",
]

Mask = NDArray[np.bool_]
Part = Literal["ffn", "heads"]


@dataclass(frozen=True, slots=True)
class Call:
    """Which mask is opened: of a layer's part, for `tokens` tokens from position `start` on, of `batch` sequences.

    A mask has a row a token, those of a sequence side by side. `versions` counts the secret orders its columns have
    been put into so far; `rows` is the order of all tokens, None if they keep theirs.
    """

    part: Part
    layer: int
    start: int
    tokens: int
    versions: int
    rows: Order | None = None
    batch: int = 1


def column_order(config: ModelConfig, part: Part, layer: int, version: int, *, coarse: bool = False) -> Order:
    """Return the name of a secret order of neurons or heads (`coarse`: of the K/V heads they belong to)."""
    if part == "ffn":
        return Order(f"layer{layer}/ffn", version, config.ffn)
    return Order(f"layer{layer}/heads", version, config.heads, config.heads // config.kv_heads, coarse)


def row_order(layer: int, start: int, tokens: int) -> Order:
    """Return the name of the fresh order of one feed-forward call's tokens."""
    return Order(f"layer{layer}/rows", start, tokens)


def ordered_axes(
    config: ModelConfig, part: Part, layer: int, names: Sequence[str]
) -> list[tuple[str, int, bool]]:
    """Return the weights a column order acts on, with the axis, and whether it is the axis of K/V heads."""
    if part == "ffn":
        block, first = f"layer{layer}/ffn", ("gate", "up") if config.gated else ("fc1",)
        outputs, last = [(f"{block}/{name}", False) for name in first], "down" if config.gated else "fc2"
    else:
        block, last = f"layer{layer}/attention", "o"
        outputs = [(f"{block}/{name}", name != "q") for name in "qkv"]
    found = [(f"{name}/weight", 1, coarse) for name, coarse in outputs]
    found += [(f"{name}/bias", 0, coarse) for name, coarse in outputs]
    found.append((f"{block}/{last}/weight", 0, False))
    predictor = f"layer{layer}/predictor/{part}/out"
    found += [(f"{predictor}/weight", 1, False), (f"{predictor}/bias", 0, False)]
    return [item for item in found if item[0] in names]


def _blocked(share: Any, axis: int, blocks: int) -> Any:
    """Split an axis into blocks that move as one: (..., blocks, width, ...)."""
    shape = share.shape
    return share.reshape((*shape[:axis], blocks, shape[axis] // blocks, *shape[axis + 1 :]))


async def shuffle_weights(
    s: Session, config: ModelConfig, weights: dict[str, Any], part: Part, layer: int, version: int
) -> None:
    """Put a layer's weights into the next secret order: 2 rounds, their size once from each server.

    K/V heads under grouped-query attention follow their groups in two more rounds, side by side.
    """
    named = ordered_axes(config, part, layer, tuple(weights))
    for coarse in (False, True):
        members = [
            (name, axis)
            for name, axis, grouped in named
            if (grouped and config.heads != config.kv_heads) is coarse
        ]
        if not members:
            continue
        order = column_order(config, part, layer, version, coarse=coarse)
        parts = [Shuffled(_blocked(weights[name], axis, len(order)), axis) for name, axis in members]
        moved = await shuffle(s, order, parts)
        for (name, _), share in zip(members, moved, strict=True):
            weights[name] = share.reshape(weights[name].shape)


async def open_bits(s: Session, bits: Any) -> Mask | None:
    """Open XOR shares of bits (m, n): one round, 8 ceil(mn / 64) bytes. None where there are no values."""
    (words,) = await s.open_bits(s.ops.pack_bits(bits))
    if not s.ops.exact:
        return None
    return np.asarray(s.ops.unpack_bits(words, bits.shape), bool)


_LASTING = {
    "none": "in the model's own order: which neurons and heads, for which tokens",
    "per-call": "columns in an order of this call: counts of rows and columns, overlaps between its tokens",
    "per-inference": "columns in one order for the inference: counts, overlaps and frequencies over its tokens",
}


def why_opened(settings: CometSettings, call: Call) -> str:
    """Say in a sentence of the reveal ledger what the opened mask lets its readers link, and how exact counts are."""
    lasting = settings.columns if isinstance(settings.columns, str) else "per-inference"
    if call.part == "heads" and lasting == "per-call":
        lasting = "per-inference"
    text = _LASTING[lasting]
    if isinstance(settings.columns, int):
        text = f"columns in one order for {settings.columns} tokens: counts, overlaps and frequencies within them"
    only_count = lasting == "per-call" and call.tokens * call.batch == 1
    if only_count:
        text = "columns in an order of this call: the number of active columns and nothing else"
    rows = "tokens in a fresh order" if call.rows is not None else "tokens in their order"
    text = f"{text}; {rows}" if call.part == "heads" or not only_count else text
    early = (
        "; predicted from the layer's input" if settings.predictor_lookahead and call.part == "ffn" else ""
    )
    return f"{text}; {_how_exact(settings, call.part, only_count)}{early}"


def _how_exact(settings: CometSettings, part: Part, only_count: bool) -> str:
    """Say whether counts are the true ones, and what noise on them is worth."""
    privacy = settings.privacy
    noise = None if privacy is None else privacy.ffn if part == "ffn" else privacy.heads
    if noise is None:
        return "exact counts"
    text = (
        f"each token's count under noise, ({noise.epsilon:g}, {noise.delta:g})-private for one bit of the mask, and "
        "each server knows its own half of the noise"
    )
    return text if only_count else f"{text}; it protects counts, not which columns tokens have in common"
