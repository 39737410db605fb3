"""What Comet's settings mean for a model: ranks, thresholds, predictors' weights, and masks that are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from comet_sim.baselines import SUITES
from comet_sim.comet.accounting import require_accounting
from comet_sim.comet.bitmap import Bitmap, load_bitmap
from comet_sim.comet.decoder import extra_shapes
from comet_sim.comet.masks import MaskSource
from comet_sim.comet.oracle import plain_masks
from comet_sim.comet.plain import Part
from comet_sim.comet.predictor_file import (
    LOOKAHEAD_FILE,
    PREDICTOR_FILE,
    TrainedPredictor,
    load_predictor,
)
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.config import ModelConfig
from comet_sim.mpc.suite import Reference
from comet_sim.scenario.base import SettingError
from comet_sim.scenario.comet import CometSpec, PredictorSpec, PrivacySpec
from comet_sim.scenario.prepare import Prepared
from comet_sim.scenario.schema import Scenario, SystemSpec

__all__ = ["Skipping", "skipping_of"]

_AUTO = {"ffn": 8, "heads": 16}
"""Hidden width over this is a predictor's rank unless somebody says otherwise."""


@dataclass(frozen=True)
class Skipping:
    """A system under Comet, ready to run; `weights` of its predictors, `masks` where they are given from outside."""

    settings: CometSettings
    weights: Mapping[str, Any]
    masks: MaskSource | None


def skipping_of(
    scenario: Scenario, system: SystemSpec, prepared: Prepared, checkpoint: Checkpoint | None
) -> Skipping | None:
    """Return what Comet needs for a system of the scenario; None for a dense one.

    Raises `SettingError`, naming the key, for what this model cannot do.
    """
    if system.name != "comet":
        return None
    table = ("systems", scenario.systems.index(system), "comet")
    key = (*table, "predictor")
    try:
        reference = SUITES[system.suite].reference
        return _skipping(scenario, system.comet or CometSpec(), prepared, checkpoint, reference)
    except SettingError as error:
        raise SettingError((*(table if error.key[0] == "privacy" else key), *error.key), str(error)) from None
    except InputError as error:
        raise SettingError((*key, "source"), str(error)) from None


def _skipping(
    scenario: Scenario,
    spec: CometSpec,
    prepared: Prepared,
    checkpoint: Checkpoint | None,
    reference: Reference | None,
) -> Skipping:
    config, asked = prepared.model.config, spec.predictor
    if asked.neurons and config.activation != "relu":
        raise SettingError(
            ("neurons",),
            f"the model's activation is {config.activation}, which leaves no neuron at zero; accepted: false, or a "
            "ReLU model",
        )
    if asked.lookahead and not asked.neurons:
        raise SettingError(("lookahead",), "it predicts neurons, but none are skipped; accepted: false")
    predictor = _predictor(asked, prepared, checkpoint)
    bitmap = None
    if asked.source == "recorded":
        if asked.file is None:
            raise SettingError(("file",), "recorded masks come from a file; name one")
        bitmap = load_bitmap(asked.file)
    heads = asked.heads if asked.heads is not None else _skips_heads(asked, prepared, predictor, bitmap)
    settings = _settings(spec, config, predictor, heads)
    parts: list[Part] = [*(["ffn"] if settings.ffn else []), *(["heads"] if settings.heads else [])]  # type: ignore[list-item]
    if asked.source == "trained" and heads and predictor is not None and not predictor.heads:
        raise SettingError(("heads",), "the predictor has no heads; accepted: false")
    exact = scenario.execution == "exact"
    if bitmap is not None:
        tokens = prepared.prompt.tokens + scenario.workload.output_tokens - 1
        _check_bitmap(bitmap, config, parts, tokens, len(prepared.prompts))
    elif not (asked.source == "trained" and exact):
        bitmap = _plain(scenario, prepared, checkpoint, settings, parts, predictor, reference)
    weights = _weights(settings, config, predictor) if exact else {}
    return Skipping(settings, weights, None if bitmap is None else bitmap.source())


def _predictor(
    asked: PredictorSpec, prepared: Prepared, checkpoint: Checkpoint | None
) -> TrainedPredictor | None:
    """Load the trained predictor: demanded by its source, else used for its rank where it is at hand."""
    folder, model = prepared.model.folder, checkpoint or prepared.model.config
    usual = LOOKAHEAD_FILE if asked.lookahead else PREDICTOR_FILE
    if asked.source == "trained":
        if folder is None and asked.file is None:
            raise SettingError(
                ("source",),
                "only the model's shapes are known, there is no trained predictor; accepted: recorded",
            )
        found = load_predictor(asked.file or Path(folder or "") / usual, model)
        if found.lookahead != asked.lookahead:
            sees = "the layer's input" if found.lookahead else "the feed-forward's own input"
            raise SettingError(
                ("lookahead",),
                f"read {str(asked.lookahead).lower()}, but the predictor was trained for {sees}; accepted: "
                f"{str(found.lookahead).lower()}, or a predictor of comet-sim train-predictor with"
                f"{'out' if found.lookahead else ''} --lookahead",
            )
        return found
    if folder is not None and (folder / usual).is_file():
        return load_predictor(folder / usual, model)
    return None


def _skips_heads(
    asked: PredictorSpec, prepared: Prepared, predictor: TrainedPredictor | None, bitmap: Bitmap | None
) -> bool:
    if bitmap is not None:
        return bitmap.heads is not None
    if asked.source == "trained":
        return bool(predictor and predictor.heads)
    return bool(prepared.model.metadata().head_thresholds)


def _settings(
    spec: CometSpec, config: ModelConfig, predictor: TrainedPredictor | None, heads: bool
) -> CometSettings:
    asked = spec.predictor

    def rank(part: Part, given: int | str) -> int:
        trained = predictor.of(part) if predictor else ()
        own = trained[0].rank if trained else max(1, config.hidden // _AUTO[part])
        if given == "auto":
            return own
        if asked.source == "trained" and given != own:
            name = "rank" if part == "ffn" else "rank_heads"
            raise SettingError(
                (name,), f"read {given}, but the trained predictor has rank {own}; accepted: auto"
            )
        return int(given)

    def delta(part: Part, given: float | None) -> float:
        return given if given is not None else (predictor.delta(part) if predictor else 0.0)

    return CometSettings(
        privacy=_privacy(spec.privacy),
        source=asked.source,
        ffn=asked.neurons,
        predictor_lookahead=asked.lookahead,
        heads=heads,
        rank_ffn=rank("ffn", asked.rank),
        rank_heads=rank("heads", asked.rank_heads),
        delta_ffn=delta("ffn", asked.delta),
        delta_heads=delta("heads", asked.delta_heads),
        columns=spec.shuffle.columns,  # type: ignore[arg-type]
        rows=spec.shuffle.rows,
        linear=spec.products,
        simm=spec.simm,
        policy=spec.cache.policy,
        prefetch=spec.cache.prefetch,
        cache_lookahead=spec.cache.lookahead,
    )


def _privacy(asked: PrivacySpec | None) -> PrivacySettings | None:
    if asked is None or not (asked.neurons or asked.heads):
        return None
    found = {}
    for name, noise in (("neurons", asked.neurons), ("heads", asked.heads)):
        try:
            found[name] = None if noise is None else Noise(noise.epsilon, noise.delta)
        except InputError as error:
            raise SettingError(("privacy", name), str(error)) from None
    require_accounting()
    return PrivacySettings(found["neurons"], found["heads"])


def _plain(
    scenario: Scenario,
    prepared: Prepared,
    checkpoint: Checkpoint | None,
    settings: CometSettings,
    parts: list[Part],
    predictor: TrainedPredictor | None,
    reference: Reference | None,
) -> Bitmap:
    """Run the plain model for its masks: the true ones, or in a shape run those its predictor finds.

    With a `reference` it has the functions that the suite puts in place of others.
    """
    every = [prompt.ids for prompt in prepared.prompts if prompt.ids is not None]
    if prepared.model.folder is None or not every:
        missing = "weights" if prepared.model.folder is None else "token ids (prompt, prompt_ids or prompts)"
        raise SettingError(
            ("source",),
            f"a run with source {settings.source!r} takes its masks from the plain model, but there are no "
            f"{missing}; accepted: recorded",
        )
    loaded = checkpoint or prepared.model.load()
    found = [
        plain_masks(
            loaded,
            ids,
            scenario.workload.output_tokens,
            parts=parts,
            how="predicted" if settings.source == "trained" else "true",
            predictor=predictor,
            deltas=(settings.delta_ffn, settings.delta_heads),
            reference=reference,
        )[1]
        for ids in every
    ]
    return Bitmap.of_sequences(found)


def _check_bitmap(bitmap: Bitmap, config: ModelConfig, parts: list[Part], tokens: int, batch: int) -> None:
    if bitmap.batch != batch:
        raise SettingError(
            ("file",), f"masks are for a batch of {bitmap.batch}, but the run's workload.batch is {batch}"
        )
    for part in parts:
        masks = bitmap.of(part)
        width = config.ffn if part == "ffn" else config.heads
        if masks is None:
            raise SettingError(("file",), f"the file has no masks of {part}")
        if (masks.shape[0], masks.shape[2]) != (config.layers, width):
            raise SettingError(
                ("file",),
                f"masks of {part} are for {masks.shape[0]} layers of {masks.shape[2]}, but {config.name} has "
                f"{config.layers} of {width}",
            )
        if bitmap.tokens < tokens:
            raise SettingError(
                ("file",),
                f"masks are for {bitmap.tokens} tokens, but the run has {tokens} (one has none: the last)",
            )


def _weights(
    settings: CometSettings, config: ModelConfig, predictor: TrainedPredictor | None
) -> dict[str, Any]:
    """Return the predictors' weights; zeros where none of the rank is at hand and masks are given."""
    known = predictor.tensors() if predictor else {}
    found: dict[str, Any] = {}
    for name, shape in extra_shapes(config, settings).items():
        stored = known.get(name)
        found[name] = stored if stored is not None and stored.shape == shape else np.zeros(shape, np.float32)
    return found
