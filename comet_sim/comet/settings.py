"""Every switch of Comet in one place; the scenario's `[systems.comet]` table fills it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from comet_sim.errors import InputError

__all__ = ["DELTAS", "EPSILONS", "CometSettings", "Linear", "Noise", "Policy", "PrivacySettings", "Source"]

Source = Literal["trained", "oracle", "recorded"]
Linear = Literal["somm", "dense", "per-entry", "row-wise"]
Policy = Literal["immediate", "merged", "fused"]

EPSILONS = (0.001, 10.0)
DELTAS = (1e-12, 0.5)
"""What noise on counts may have: within it, rounding to 2^-64 takes less than a hundredth of any delta."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Differential privacy of one revealed count: of one token's neurons, or heads, in one layer.

    Raises InputError for an epsilon outside 0.001 to 10 or a delta outside 1e-12 to 0.5.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        accepted = (("epsilon", self.epsilon, EPSILONS), ("delta", self.delta, DELTAS))
        for name, value, (low, high) in accepted:
            if not low <= value <= high:
                raise InputError(
                    f"{name} of the noise on counts: read {value}; accepted: {low:g} to {high:g} (no noise: leave it "
                    "out)"
                )


@dataclass(frozen=True, slots=True)
class PrivacySettings:
    """Noise on the counts of neurons and of heads, apart; None: exact counts are revealed."""

    ffn: Noise | None = None
    heads: Noise | None = None


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

    `predictor_lookahead`: neurons are predicted from the layer's own input, while attention still runs (extension).

    `linear`: how products with few wanted outputs are made (`somm`, or what it is compared with). `simm`:
    `dense` deals for every column; `counts` tells the dealer how many are active.

    `policy`, `prefetch`, `cache_lookahead`: how the KV cache fills its holes.

    `privacy`: one-sided noise on revealed counts; None reveals exact counts, as the paper's headline figures do.
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
    predictor_lookahead: bool = False
    linear: Linear = "somm"
    simm: Literal["dense", "counts"] = "dense"
    policy: Policy = "merged"
    prefetch: bool = False
    cache_lookahead: bool = False
    privacy: PrivacySettings | None = None
