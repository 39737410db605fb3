"""`predictor.safetensors`: a checkpoint's trained predictors of active neurons and heads, and what was measured."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from comet_sim.comet.plain import Ask, Bools, Floats, Part
from comet_sim.errors import InputError
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.config import ModelConfig

__all__ = [
    "FORMAT",
    "LOOKAHEAD_FILE",
    "PARTS",
    "PREDICTOR_FILE",
    "LowRank",
    "TrainedPredictor",
    "load_predictor",
    "save_predictor",
    "tensor_name",
]

PREDICTOR_FILE = "predictor.safetensors"
LOOKAHEAD_FILE = "predictor-lookahead.safetensors"
"""Where the predictor lies that sees the layer's input in place of the feed-forward's."""
FORMAT = "comet-sim predictor 1"
PARTS: tuple[Part, ...] = ("ffn", "heads")
_TENSORS = ("in/weight", "in/bias", "out/weight", "out/bias")
_STORED_TYPES = ("F16", "F32")

Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LowRank:
    """Scores (x @ in_weight + in_bias) @ out_weight + out_bias, float32: (d, r), (r,), (r, n), (n,)."""

    in_weight: Singles
    in_bias: Singles
    out_weight: Singles
    out_bias: Singles

    @property
    def rank(self) -> int:
        """Width between the two layers."""
        return len(self.in_bias)

    def scores(self, inputs: NDArray[np.floating]) -> Floats:
        """Scores (m, n) in float64 of normalised inputs (m, d)."""
        inner = np.asarray(inputs, np.float64) @ self.in_weight + self.in_bias
        scores: Floats = inner @ self.out_weight + self.out_bias
        return scores


@dataclass(frozen=True, slots=True)
class TrainedPredictor:
    """Predictors by layer, default thresholds, and metadata (strings); `heads` is empty when no head is skipped.

    A neuron or head is active where its score exceeds delta. `metadata` holds `checkpoint`, the digest of the
    model it was trained for, where that is known.
    """

    ffn: tuple[LowRank, ...]
    heads: tuple[LowRank, ...]
    delta_ffn: float
    delta_heads: float
    metadata: Mapping[str, str]

    @property
    def lookahead(self) -> bool:
        """Whether neurons are predicted from the layer's input, not the feed-forward's."""
        return self.metadata.get("lookahead") == "1"

    def of(self, part: Part) -> tuple[LowRank, ...]:
        """Predictors of a part, by layer."""
        return self.ffn if part == "ffn" else self.heads

    def delta(self, part: Part) -> float:
        """Default threshold of a part."""
        return self.delta_ffn if part == "ffn" else self.delta_heads

    def mask(self, ask: Ask, delta: float | None = None) -> Bools:
        """Predict a mask for the plain decoder, with the part's default threshold unless `delta` is given.

        All heads are active when heads are not predicted.
        """
        predictors = self.of(ask.part)
        if not predictors:
            return np.ones_like(ask.truth)
        seen = ask.early if self.lookahead else ask.inputs
        mask: Bools = predictors[ask.layer].scores(seen) > (self.delta(ask.part) if delta is None else delta)
        return mask

    def tensors(self) -> dict[str, Singles]:
        """Every tensor under its name in the file."""
        return {
            tensor_name(layer, part, tensor): values
            for part in PARTS
            for layer, low in enumerate(self.of(part))
            for tensor, values in zip(
                _TENSORS, (low.in_weight, low.in_bias, low.out_weight, low.out_bias), strict=True
            )
        }


def tensor_name(layer: int, part: Part, tensor: str) -> str:
    """Name in the file, such as layer0/predictor/ffn/in/weight."""
    return f"layer{layer}/predictor/{part}/{tensor}"


def load_predictor(file: Path | str, model: ModelConfig | Checkpoint) -> TrainedPredictor:
    """Load a predictor file for a model; float16 tensors become float32.

    Given a checkpoint, the file must have been trained for it, if it says for which. Raises InputError naming
    the file and tensor or key when something is missing, not known, of another shape, or not a finite number.
    """
    path = Path(file)
    config = model.config if isinstance(model, Checkpoint) else model
    if not path.is_file():
        raise InputError(f"{path}: no such file; make it with: comet-sim train-predictor {path.parent}")
    metadata, tensors = _read(path)
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path}: format: read {metadata.get('format')!r}, accepted: {FORMAT!r}")
    if isinstance(model, Checkpoint):
        _check_digest(path, metadata, model)
    ffn = tuple(_low_rank(path, tensors, i, "ffn", config) for i in range(config.layers))
    skipping = any("/predictor/heads/" in name for name in tensors)
    heads = tuple(_low_rank(path, tensors, i, "heads", config) for i in range(config.layers * skipping))
    if tensors:
        raise InputError(
            f"{path}: tensor {next(iter(tensors))}: not part of a predictor of {config.name}, "
            f"which has {config.layers} layers"
        )
    return TrainedPredictor(
        ffn,
        heads,
        _number(path, metadata, "delta_ffn"),
        _number(path, metadata, "delta_heads") if heads else 0.0,
        MappingProxyType(metadata),
    )


def save_predictor(file: Path | str, predictor: TrainedPredictor, *, half: bool = True) -> None:
    """Write a predictor file, whole or not at all, as float16 (`half`) or float32.

    Raises InputError when it cannot be written, or when a value is too large for float16.
    """
    path = Path(file)
    kind = np.float16 if half else np.float32
    with np.errstate(over="ignore"):
        tensors = {
            name: np.ascontiguousarray(values, dtype=kind) for name, values in predictor.tensors().items()
        }
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise InputError(f"{path}: tensor {name}: holds values that are not finite in {values.dtype}")
    metadata = {
        **predictor.metadata,
        "format": FORMAT,
        "delta_ffn": repr(predictor.delta_ffn),
        "delta_heads": repr(predictor.delta_heads),
    }
    whole = _in_order(save(tensors, metadata=metadata))
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(whole)
            Path(temporary).chmod(0o644)  # mkstemp's own is for the owner alone
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def _in_order(whole: bytes) -> bytes:
    """Write a safetensors header with its keys sorted: the library's own order of metadata differs by chance."""
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.dumps(json.loads(whole[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + whole[end:]


def _read(path: Path) -> tuple[dict[str, str], dict[str, Singles]]:
    """Metadata, and every tensor as float32."""
    tensors: dict[str, Singles] = {}
    try:
        with safe_open(str(path), framework="numpy") as stored:
            metadata = dict(stored.metadata() or {})
            for name in stored.keys():  # noqa: SIM118 - not a mapping
                kind = stored.get_slice(name).get_dtype()
                if kind not in _STORED_TYPES:
                    raise InputError(
                        f"{path}: tensor {name}: type {kind}, accepted: {', '.join(_STORED_TYPES)}"
                    )
                tensors[name] = stored.get_tensor(name).astype(np.float32)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a whole safetensors file ({error})") from error
    for name, values in tensors.items():
        if not np.isfinite(values).all():
            raise InputError(f"{path}: tensor {name}: holds values that are not finite numbers")
    return metadata, tensors


def _check_digest(path: Path, metadata: Mapping[str, str], checkpoint: Checkpoint) -> None:
    known = metadata.get("checkpoint")
    if known is not None and known != checkpoint.digest:
        raise InputError(
            f"{path}: checkpoint: trained for the checkpoint with digest {known[:16]}, not for "
            f"{checkpoint.config.name} with {checkpoint.digest[:16]}; "
            "train it again: comet-sim train-predictor MODEL"
        )


def _low_rank(
    path: Path, tensors: dict[str, Singles], layer: int, part: Part, config: ModelConfig
) -> LowRank:
    """Take one predictor's tensors out of `tensors`, checking their shapes; its rank is what the first one has."""
    names = [tensor_name(layer, part, tensor) for tensor in _TENSORS]
    for name in names:
        if name not in tensors:
            raise InputError(f"{path}: tensor {name}: missing, {config.name} has {config.layers} layers")
    taken = [tensors.pop(name) for name in names]
    rank = taken[0].shape[-1] if taken[0].ndim else 0
    width = config.ffn if part == "ffn" else config.heads
    for name, values, want in zip(
        names, taken, ((config.hidden, rank), (rank,), (rank, width), (width,)), strict=True
    ):
        if values.shape != want or not rank:
            raise InputError(
                f"{path}: tensor {name}: shape {values.shape}, {config.name} asks for "
                f"{want if rank else (config.hidden, 'rank')}"
            )
    for values in taken:
        values.flags.writeable = False
    return LowRank(*taken)


def _number(path: Path, metadata: Mapping[str, str], key: str) -> float:
    try:
        value = float(metadata[key])
    except (KeyError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}: {key}: read {metadata.get(key)!r}, accepted: a finite number")
    return value
