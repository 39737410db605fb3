"""Training a predictor: low-rank logistic regression of the true masks on the normalised inputs, in numpy.

Source: the paper trains two low-rank layers on public text apart from the test data and names neither loss nor
sizes; binary cross-entropy, Adam, ranks and the choice of thresholds are reconstructions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from comet_sim.comet.plain import (
    Ask,
    Bools,
    MaskSource,
    Part,
    SkippingDecoder,
    all_active,
    true_masks,
)
from comet_sim.comet.predictor_file import PARTS, LowRank, TrainedPredictor
from comet_sim.comet.texts import Ids, TrainingTexts
from comet_sim.comet.threshold import Curve, Floors
from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint

__all__ = ["RECALL", "Ranks", "train_predictor"]

RECALL = 0.94
"""Recall wanted on the validation windows: two hundredths more than what is promised for text from elsewhere."""
_PRECISION, _PRECISION_GATED = 0.81, 0.71
_CHUNK, _BATCH = 32, 512
_RATE, _WARM_UP = 1e-2, 20
_MEMORY = (0.9, 0.98)
# A short text is gone through several times, but not for ever.
_LEAST_STEPS, _MOST_PASSES = 200, 20
_TOLD_EVERY_S = 10.0

Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Ranks:
    """Widths between the two layers of the predictors of neurons and heads."""

    ffn: int = 32
    heads: int = 16

    def of(self, part: Part) -> int:
        """Rank of a part."""
        return self.ffn if part == "ffn" else self.heads


class _Fit:
    """One predictor in training by Adam, float32. Its bias starts at the log odds of the first masks."""

    def __init__(self, inputs: Singles, truth: Bools, rank: int, rng: np.random.Generator) -> None:
        d, n = inputs.shape[1], truth.shape[1]
        share = (truth.sum(axis=0) + 0.5) / (len(truth) + 1)
        self.parameters: list[Singles] = [
            (rng.standard_normal((d, rank)) / np.sqrt(d)).astype(np.float32),
            np.zeros(rank, np.float32),
            (rng.standard_normal((rank, n)) * 0.1).astype(np.float32),
            np.log(share / (1 - share)).astype(np.float32),
        ]
        self._means = [np.zeros_like(values) for values in self.parameters]
        self._squares = [np.zeros_like(values) for values in self.parameters]
        self._steps = 0

    def step(self, x: Singles, truth: Bools, rate: float) -> None:
        """Take one step on inputs (m, d) and masks (m, n)."""
        first, first_bias, second, second_bias = self.parameters
        inner = x @ first + first_bias
        error = (expit(inner @ second + second_bias) - truth).astype(np.float32) / np.float32(len(x))
        back = error @ second.T
        gradients = (x.T @ back, back.sum(axis=0), inner.T @ error, error.sum(axis=0))
        self._steps += 1
        fast, slow = (1 - memory**self._steps for memory in _MEMORY)
        for values, mean, square, gradient in zip(
            self.parameters, self._means, self._squares, gradients, strict=True
        ):
            mean += (1 - _MEMORY[0]) * (gradient - mean)
            square += (1 - _MEMORY[1]) * (gradient * gradient - square)
            values -= rate * (mean / fast) / (np.sqrt(square / slow) + 1e-8)

    def rounded(self) -> LowRank:
        """Return the predictor with the values that float16 keeps."""
        return LowRank(*(values.astype(np.float16).astype(np.float32) for values in self.parameters))


def train_predictor(
    checkpoint: Checkpoint,
    texts: TrainingTexts,
    *,
    ranks: Ranks | None = None,
    seed: int = 0,
    lookahead: bool = False,
    tell: Callable[[str], None],
) -> TrainedPredictor:
    """Train predictors of every layer's neurons and, if heads were skipped in training, heads.

    One pass over the windows, or more where they are few. Where heads may be skipped, every other window is run
    with its true heads only, so that inputs are those of both ways of running. Thresholds are chosen on the
    validation windows. `lookahead`: neurons are predicted from the layer's input, not their block's. Equal inputs
    give an equal predictor on the same machine and versions. Raises InputError if the activation is not ReLU.
    """
    config = checkpoint.config
    ranks = ranks or Ranks()
    if config.activation != "relu":
        raise InputError(
            f"{config.name}: activation {config.activation}: its neurons are never exactly zero, ReLU's are; "
            "accepted: a model with ReLU, in the gate if it has one"
        )
    if min(ranks.ffn, ranks.heads) < 1:
        raise InputError(f"ranks: read {ranks.ffn} and {ranks.heads}, accepted: whole numbers from 1")
    parts = PARTS if checkpoint.metadata.head_thresholds else PARTS[:1]
    fits: dict[tuple[Part, int], _Fit] = {}
    chunks = [texts.train[i : i + _CHUNK] for i in range(0, len(texts.train), _CHUNK)]
    rng = np.random.default_rng([seed, 2])
    run = _Collector(checkpoint, parts, lookahead)
    once = sum(-(-chunk.size // _BATCH) for chunk in chunks)
    passes = min(_MOST_PASSES, -(-_LEAST_STEPS // once))
    done, told = 0, time.monotonic()
    begun = told
    for number, chunk in enumerate(chunks):
        rows = run.rows(chunk)
        orders = [rng.permutation(chunk.size) for _ in range(passes)]
        batches = [order[i : i + _BATCH] for order in orders for i in range(0, len(order), _BATCH)]
        for key, (inputs, truth) in rows.items():
            if key not in fits:
                fits[key] = _Fit(inputs, truth, ranks.of(key[0]), rng)
            for i, batch in enumerate(batches, done):
                fits[key].step(inputs[batch], truth[batch], _rate(i, passes * once))
        done += len(batches)
        now = time.monotonic()
        if now - told > _TOLD_EVERY_S:
            told, left = now, (now - begun) / (number + 1) * (len(chunks) - number - 1)
            tell(f"training: window {(number + 1) * _CHUNK} of {len(texts.train)}, about {left:.0f} s left")
    trained = {part: tuple(fits[part, i].rounded() for i in range(config.layers)) for part in parts}
    tell(f"choosing thresholds on {texts.validation.size:,} tokens")
    return _with_thresholds(checkpoint, trained, texts, run, seed)


def _with_thresholds(
    checkpoint: Checkpoint,
    trained: dict[Part, tuple[LowRank, ...]],
    texts: TrainingTexts,
    run: _Collector,
    seed: int,
) -> TrainedPredictor:
    config = checkpoint.config
    curves = {part: Curve() for part in trained}
    for i in range(0, len(texts.validation), _CHUNK):
        for (part, layer), (inputs, truth) in run.rows(texts.validation[i : i + _CHUNK]).items():
            curves[part].add(trained[part][layer].scores(inputs), truth)
    floors = Floors(RECALL, _PRECISION_GATED if config.gated else _PRECISION)
    metadata = {
        "checkpoint": checkpoint.digest,
        "model": config.name,
        "source": f"comet-sim train-predictor, seed {seed}, {texts.train.size} tokens of {texts.source}",
        "validated_on": f"{texts.validation.size} tokens, ends of the same documents",
    }
    if run.lookahead:
        metadata["lookahead"] = "1"
    deltas: dict[Part, float] = {}
    for part, curve in curves.items():
        point = curve.choose(floors)
        deltas[part] = point.delta
        metadata |= {
            f"rank_{part}": str(trained[part][0].rank),
            f"recall_{part}": f"{point.recall:.4f}",
            f"precision_{part}": f"{point.precision:.4f}",
            f"density_{part}": f"{point.density:.4f}",
            f"true_density_{part}": f"{curve.true_density:.4f}",
        }
    return TrainedPredictor(
        trained["ffn"], trained.get("heads", ()), deltas["ffn"], deltas.get("heads", 0.0), metadata
    )


class _Collector:
    """Runs windows and keeps the normalised inputs and true masks of each block."""

    def __init__(self, checkpoint: Checkpoint, parts: tuple[Part, ...], lookahead: bool) -> None:
        self._parts = parts
        self.lookahead = lookahead
        self._found: dict[tuple[Part, int], tuple[list[Singles], list[Bools]]] = {}
        sources: list[MaskSource] = [all_active, true_masks] if "heads" in parts else [all_active]
        thresholds = checkpoint.metadata.head_thresholds
        self._decoders = [
            SkippingDecoder(
                checkpoint.config,
                checkpoint.weights,
                source,
                head_thresholds=thresholds,
                observe=self._observe,
            )
            for source in sources
        ]

    def _observe(self, ask: Ask, used: Bools) -> None:
        if ask.part in self._parts:
            inputs, truths = self._found.setdefault((ask.part, ask.layer), ([], []))
            inputs.append((ask.early if self.lookahead else ask.inputs).astype(np.float32))
            truths.append(ask.truth)

    def rows(self, windows: Ids) -> dict[tuple[Part, int], tuple[Singles, Bools]]:
        """Inputs (tokens, d) and truth (tokens, n) by part and layer."""
        self._found = {}
        for number, window in enumerate(windows):
            self._decoders[number % len(self._decoders)].forward(window)
        return {key: (np.concatenate(x), np.concatenate(y)) for key, (x, y) in self._found.items()}


def _rate(step: int, steps: int) -> float:
    """Learning rate of a step: warms up, then falls to a fiftieth along half a cosine."""
    return _RATE * min(1.0, (step + 1) / _WARM_UP) * (0.02 + 0.98 * 0.5 * (1 + cos(pi * step / steps)))
