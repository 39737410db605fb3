"""What skipping costs a model: perplexity and agreement with the plain model, recall and precision of masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from comet_sim.comet.plain import (
    Ask,
    Bools,
    Floats,
    MaskSource,
    Part,
    SkippingDecoder,
    all_active,
    by_part,
    true_masks,
)
from comet_sim.comet.predictor_file import PARTS, TrainedPredictor
from comet_sim.comet.texts import Ids
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.plain import PlainDecoder

__all__ = ["Counts", "Way", "measure_ways"]


@dataclass(slots=True)
class Counts:
    """Entries of masks by what is true and what was used; the same inputs decide both."""

    true: int = 0
    used: int = 0
    both: int = 0
    total: int = 0

    def add(self, truth: Bools, used: Bools) -> None:
        """Count a mask."""
        self.true += int(truth.sum())
        self.used += int(used.sum())
        self.both += int((truth & used).sum())
        self.total += truth.size

    @property
    def recall(self) -> float:
        """Share of the truly active that was used; 1 if none is active."""
        return self.both / self.true if self.true else 1.0

    @property
    def precision(self) -> float:
        """Share of the used that is truly active; 1 if none was used."""
        return self.both / self.used if self.used else 1.0

    @property
    def density(self) -> float:
        """Share of entries that was used."""
        return self.used / self.total if self.total else 0.0


@dataclass(slots=True)
class Way:
    """One way of running and what was measured: by domain the summed cross-entropy and the number of tokens.

    `agreed` counts tokens whose best next token is the plain model's. `masks` holds counts by part and layer.
    """

    name: str
    skips: tuple[Part, ...]
    predicted: bool
    entropies: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    agreed: int = 0
    masks: dict[tuple[Part, int], Counts] = field(default_factory=dict)

    def perplexity(self, domain: str) -> float:
        """exp of the mean cross-entropy of every next token."""
        return float(np.exp(self.entropies[domain] / self.tokens[domain]))

    @property
    def agreement(self) -> float:
        """Share of tokens whose best next token is the plain model's."""
        return self.agreed / sum(self.tokens.values())

    def counts(self, part: Part) -> Counts:
        """Counts of a part over all layers."""
        whole = Counts()
        for (own, _), counts in self.masks.items():
            if own == part:
                whole.true += counts.true
                whole.used += counts.used
                whole.both += counts.both
                whole.total += counts.total
        return whole

    def observe(self, ask: Ask, used: Bools) -> None:
        """Count a mask of a forward pass."""
        self.masks.setdefault((ask.part, ask.layer), Counts()).add(ask.truth, used)

    def score(self, domain: str, logits: Floats, window: Ids, plain: NDArray[np.int64]) -> None:
        """Take the logits of a window and the plain model's best next tokens."""
        peak = logits.max(axis=1)
        normaliser = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
        entropy = float((normaliser - logits[np.arange(len(logits)), window[1:]]).sum())
        self.entropies[domain] = self.entropies.get(domain, 0.0) + entropy
        self.tokens[domain] = self.tokens.get(domain, 0) + len(logits)
        self.agreed += int((logits.argmax(axis=1) == plain).sum())


def measure_ways(
    checkpoint: Checkpoint,
    predictor: TrainedPredictor | None,
    windows: Mapping[str, Ids],
    *,
    deltas: Mapping[Part, float] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Way]:
    """Run windows of each domain in every way the model and its predictor allow, the plain model first.

    `deltas` replaces the predictor's thresholds by part; `progress` takes windows done and in all.
    """
    ways = _ways(checkpoint, predictor, deltas or {})
    plain = PlainDecoder(checkpoint.config, checkpoint.weights)
    reference = Way("plain", (), predicted=False)
    decoders = [
        SkippingDecoder(
            checkpoint.config,
            checkpoint.weights,
            source,
            head_thresholds=checkpoint.metadata.head_thresholds,
            observe=way.observe,
        )
        for way, source in ways
    ]
    total, done = sum(map(len, windows.values())), 0
    for domain, own in windows.items():
        for window in own:
            logits, _ = plain.forward(window[:-1])
            best = logits.argmax(axis=1)
            reference.score(domain, logits, window, best)
            for (way, _), decoder in zip(ways, decoders, strict=True):
                way.score(domain, decoder.forward(window[:-1])[0], window, best)
            done += 1
            if progress is not None:
                progress(done, total)
    return [reference, *(way for way, _ in ways)]


def _ways(
    checkpoint: Checkpoint, predictor: TrainedPredictor | None, deltas: Mapping[Part, float]
) -> list[tuple[Way, MaskSource]]:
    heads = bool(checkpoint.metadata.head_thresholds)
    ways = [(Way("true neurons", ("ffn",), predicted=False), by_part(ffn=true_masks))]
    if heads:
        ways.append((Way("true heads", ("heads",), predicted=False), by_part(heads=true_masks)))
    if predictor is None:
        return ways

    def predicted(ask: Ask) -> Bools:
        return predictor.mask(ask, deltas.get(ask.part))

    ways.insert(
        1, (Way("predicted neurons", ("ffn",), predicted=True), by_part(ffn=predicted, heads=all_active))
    )
    if predictor.heads:
        ways.append((Way("predicted neurons and heads", PARTS, predicted=True), predicted))
    return ways
