"""The `[systems.comet]` table: every switch of Comet, described where it is declared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from comet_sim.comet.settings import Linear, Policy, Source
from comet_sim.scenario.base import Table

__all__ = ["CacheSpec", "CometSpec", "NoiseSpec", "PredictorSpec", "PrivacySpec", "ShuffleSpec"]


_LASTING = ("per-inference", "per-call", "none")
_RANKS: dict[str, Any] = {"anyOf": [{"enum": ["auto"]}, {"type": "integer", "minimum": 1}]}


def _lasting(value: Any) -> Any:
    whole = type(value) is int and value >= 1
    if not whole and value not in _LASTING:
        raise ValueError(f"read {value!r}; accepted: {', '.join(_LASTING)}, or a number of tokens from 1")
    return value


def _rank(value: Any) -> Any:
    whole = type(value) is int and value >= 1
    if not whole and value != "auto":
        raise ValueError(f"read {value!r}; accepted: auto, or a whole number from 1")
    return value


class PredictorSpec(Table):
    """Where masks come from, and what is skipped."""

    source: Annotated[
        Source,
        Field(
            description="trained: the predictor beside the checkpoint, run under MPC. oracle: the plain model's true "
            "masks. recorded: a file of masks. The last two replace what is opened; a predictor's messages are sent "
            "all the same."
        ),
    ] = "trained"
    file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Another predictor file (trained), or the file of masks (recorded); in a scenario "
            "file, relative to it.",
        ),
    ] = None
    rank: Annotated[
        str | int,
        BeforeValidator(_rank),
        Field(
            json_schema_extra=_RANKS,
            description="Inner width of the neurons' predictors: a trained one has its own, else hidden / 8 if auto.",
        ),
    ] = "auto"
    rank_heads: Annotated[
        str | int,
        BeforeValidator(_rank),
        Field(
            json_schema_extra=_RANKS,
            description="Inner width of the heads' predictors: a trained one's own, else hidden / 16 if auto.",
        ),
    ] = "auto"
    delta: Annotated[
        float | None,
        Field(
            allow_inf_nan=False,
            description="A neuron is active where its score exceeds this; a trained one's own if absent.",
        ),
    ] = None
    delta_heads: Annotated[float | None, Field(allow_inf_nan=False, description="The same for heads.")] = None
    lookahead: Annotated[
        bool,
        Field(
            description="Predict neurons from the layer's input, while attention still runs; a trained predictor "
            "must have been trained for it."
        ),
    ] = False
    neurons: Annotated[bool, Field(description="Whether neurons of the feed-forward are skipped.")] = True
    heads: Annotated[
        bool | None,
        Field(
            description="Whether attention heads are skipped; if absent, where the checkpoint was trained for it "
            "(or the predictor or the file of masks has heads)."
        ),
    ] = None


class ShuffleSpec(Table):
    """How long a secret order lasts before masks are opened in it."""

    columns: Annotated[
        str | int,
        BeforeValidator(_lasting),
        Field(
            json_schema_extra={"anyOf": [{"enum": list(_LASTING)}, {"type": "integer", "minimum": 1}]},
            description="Order of neurons and heads: one an inference (made in the offline phase), a new one every R "
            "tokens (a number), a new one each feed-forward call (heads stay per inference), or the model's own.",
        ),
    ] = "per-inference"
    rows: Annotated[
        Literal["per-call", "none"],
        Field(description="Order of the tokens of a feed-forward call: fresh each time, or their own."),
    ] = "per-call"


class CacheSpec(Table):
    """How holes of the KV cache, left by skipped heads, are filled."""

    policy: Annotated[
        Policy,
        Field(
            description="immediate: one multiplication a missed entry. merged: all misses of a layer step as one "
            "product. fused: in the step's own product."
        ),
    ] = "merged"
    prefetch: Annotated[
        bool,
        Field(description="Fill holes early where that costs less than filling them when they are missed."),
    ] = False
    lookahead: Annotated[
        bool,
        Field(description="Fill likely misses of the next layer at low priority, while the link would idle."),
    ] = False


class NoiseSpec(Table):
    """One-sided noise on one kind of revealed count."""

    epsilon: Annotated[float, Field(description="Epsilon of one reveal, for one bit of a mask: 0.001 to 10.")]
    delta: Annotated[float, Field(description="Delta of one reveal: 1e-12 to 0.5.")] = 1e-6


class PrivacySpec(Table):
    """Differential privacy of revealed counts; a part without noise reveals exact counts."""

    neurons: Annotated[NoiseSpec | None, Field(description="Noise on the counts of active neurons.")] = None
    heads: Annotated[NoiseSpec | None, Field(description="Noise on the counts of active heads.")] = None


class CometSpec(Table):
    """Comet on top of the system's suite."""

    predictor: PredictorSpec = PredictorSpec()
    shuffle: ShuffleSpec = ShuffleSpec()
    products: Annotated[
        Linear,
        Field(
            description="Products before a non-linearity: somm (each active row and column sent once), or what it is "
            "compared with: dense, entry by entry, row by row."
        ),
    ] = "somm"
    simm: Annotated[
        Literal["dense", "counts"],
        Field(
            description="Products after it: the dealer deals for every column, or is told how many are active "
            "(an on-demand dealer only)."
        ),
    ] = "dense"
    cache: CacheSpec = CacheSpec()
    privacy: Annotated[
        PrivacySpec | None, Field(description="Noise on revealed counts; exact counts if absent.")
    ] = None
