"""Masks found outside the protocol: the plain model runs with skipping, and what it skipped is written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from comet_sim.comet.bitmap import Bitmap
from comet_sim.comet.indexing import Part
from comet_sim.comet.plain import Ask, Bools, MaskSource, SkippingDecoder, all_active, by_part, true_masks
from comet_sim.comet.predictor_file import TrainedPredictor
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.mpc.suite import Reference

__all__ = ["plain_masks"]


def plain_masks(
    checkpoint: Checkpoint,
    prompt: Sequence[int],
    output_tokens: int,
    *,
    parts: Sequence[Part],
    how: Literal["true", "predicted"] = "true",
    predictor: TrainedPredictor | None = None,
    deltas: tuple[float, float] = (0.0, 0.0),
    reference: Reference | None = None,
) -> tuple[list[int], Bitmap]:
    """Generate greedily with the parts skipped; return the tokens and the masks of prompt and output.

    `true`: the masks the blocks themselves give; `predicted`: a predictor's, above the deltas of neurons and heads.
    With a `reference` the model has a suite's functions in place of its own.
    """
    source: MaskSource = true_masks
    if how == "predicted":
        assert predictor is not None, "predicted masks need a predictor"
        source = lambda ask: predictor.mask(ask, deltas[ask.part == "heads"])  # noqa: E731
    seen: dict[tuple[Part, int], list[Bools]] = {}

    def observe(ask: Ask, mask: Bools) -> None:
        seen.setdefault((ask.part, ask.layer), []).append(mask)

    plain = SkippingDecoder(
        checkpoint.config,
        checkpoint.weights,
        by_part(
            ffn=source if "ffn" in parts else all_active, heads=source if "heads" in parts else all_active
        ),
        head_thresholds=checkpoint.metadata.head_thresholds,
        observe=observe,
        reference=reference,
    )
    tokens = plain.generate(list(prompt), output_tokens)
    layers = range(checkpoint.config.layers)
    found = {part: np.stack([np.concatenate(seen[part, layer]) for layer in layers]) for part in parts}
    return tokens, Bitmap(found.get("ffn"), found.get("heads"))
