"""Every switch of Comet in one place; the scenario's `[systems.comet]` table fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CometSettings", "Linear", "Policy", "Source"]

Source = Literal["trained", "oracle", "recorded"]
Linear = Literal["somm", "dense", "per-entry", "row-wise"]
Policy = Literal["immediate", "merged", "fused"]


@dataclass(frozen=True, slots=True)
class CometSettings:
    """What Comet does and how; the defaults are the paper's, where it says.

    `source`: where masks come from: the `trained` predictor, an `oracle` (the plain model's true mask) or a
    `recorded` file; the last two replace what the predictor's messages open, which are sent all the same.
    `ffn`, `heads`: what is skipped. `rank_ffn`, `rank_heads`: inner width of the predictors.
    `delta_ffn`, `delta_heads`: a score above it makes a neuron or head active.

    `columns`: how long one secret order of neurons and heads lasts: `per-inference`, `per-call` (neurons; heads
    stay per inference), `none`, or a number R of tokens. `rows`: whether the tokens of a feed-forward call are put
    into a fresh order each time.

    `linear`: how products with few wanted outputs are made (`somm`, or what it is compared with). `simm`:
    `dense` deals for every column; `counts` tells the dealer how many are active.

    `policy`, `prefetch`, `cache_lookahead`: how the KV cache fills its holes.
    """

    source: Source = "trained"
    ffn: bool = True
    heads: bool = True
    rank_ffn: int = 32
    rank_heads: int = 16
    delta_ffn: float = 0.0
    delta_heads: float = 0.0
    columns: Literal["per-inference", "per-call", "none"] | int = "per-inference"
    rows: Literal["per-call", "none"] = "per-call"
    linear: Linear = "somm"
    simm: Literal["dense", "counts"] = "dense"
    policy: Policy = "merged"
    prefetch: bool = False
    cache_lookahead: bool = False
