"""Loading transformers checkpoints (safetensors) into named numpy arrays, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig, norm_names
from comet_sim.models.hf_config import read_hf_config
from comet_sim.models.tensors import hf_tensors, is_buffer, shapes, without_prefix

__all__ = ["METADATA_FILE", "Checkpoint", "Metadata", "load_checkpoint", "load_config"]

METADATA_FILE = "comet_sim.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# BF16 is read as its raw 16 bits: they are the upper half of a float32.
_STORED_TYPES: Mapping[str, str] = MappingProxyType({"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"})


@dataclass(frozen=True, slots=True)
class Metadata:
    """What this project knows of a checkpoint beyond transformers' files.

    `norm_scales` maps a norm's canonical name to the exponent e of its public scale 2^e (absent: 0).
    `head_thresholds` holds, per layer, the norm of an attention head's output below which it was skipped in
    training (empty: not trained in).
    """

    norm_scales: Mapping[str, int] = field(default_factory=dict)
    head_thresholds: tuple[float, ...] = ()
    source: str = ""
    license: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's configuration and its weights (float32 or float64) under canonical names.

    Linear weights are (in, out), so y = x @ weight + bias; `embed` and `lm_head` are (vocab, hidden).
    A tied head has no array of its own: `config.head_name` names the one to use.
    `tokenizer` is None when the folder has no tokenizer.json. `digest` is a SHA-256 over config and weight
    files.
    """

    config: ModelConfig
    weights: Mapping[str, NDArray[np.floating]]
    tokenizer: Path | None
    digest: str
    metadata: Metadata


def load_config(folder: Path | str) -> ModelConfig:
    """Read a checkpoint folder's configuration only; raises InputError naming the file."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"{path}: not a checkpoint folder (expected a folder with config.json and {_SINGLE})"
        )
    file = path / "config.json"
    return read_hf_config(_read_json(file), str(file), path.resolve().name)


def load_checkpoint(folder: Path | str) -> Checkpoint:
    """Load a transformers checkpoint folder with safetensors weights, whole or sharded.

    Weights stored as F16, BF16 or F32 become float32 and F64 stays, all exactly. Raises InputError naming the
    file when a file or tensor is missing, unknown, of another shape, or damaged.
    """
    path = Path(folder)
    config = load_config(path)
    files = _weight_files(path)
    weights = _canonical(config, files)
    tokenizer = path / "tokenizer.json"
    return Checkpoint(
        config=config,
        weights=MappingProxyType(weights),
        tokenizer=tokenizer if tokenizer.is_file() else None,
        digest=_digest([path / "config.json", *files]),
        metadata=_read_metadata(path / METADATA_FILE, config),
    )


def _canonical(config: ModelConfig, files: Iterable[Path]) -> dict[str, NDArray[np.floating]]:
    """Read all weight files, checking that they hold exactly the tensors the configuration asks for."""
    known, expected = hf_tensors(config), shapes(config)
    found: dict[str, NDArray[np.floating]] = {}
    for file in files:
        for name, (dtype, shape, offset) in _tensor_table(file).items():
            bare = without_prefix(name)
            if (bare == "lm_head.weight" and config.tied) or is_buffer(bare):
                continue  # Some writers store the tied matrix twice; transformers reads the embedding.
            stored = known.get(bare)
            if stored is None:
                raise InputError(
                    f"{file}: tensor {name}: not part of this {config.architecture} model with "
                    f"{config.layers} layers"
                )
            if stored.parts[0] in found:
                raise InputError(f"{file}: tensor {name}: stored twice")
            widths = [expected[part][-1] for part in stored.parts]
            want = (*expected[stored.parts[0]][:-1], sum(widths))
            want = want[::-1] if stored.transposed else want
            if shape != want:
                raise InputError(f"{file}: tensor {name}: shape {shape}, config.json asks for {want}")
            array = _read_tensor(file, name, dtype, shape, offset)
            array = array.T if stored.transposed else array
            for part, piece in zip(
                stored.parts, np.split(array, np.cumsum(widths)[:-1], axis=-1), strict=True
            ):
                found[part] = np.ascontiguousarray(piece)
                found[part].flags.writeable = False
    for bare, stored in known.items():
        if stored.parts[0] not in found:
            listing = ", ".join(file.name for file in files)
            raise InputError(f"{file.parent}: tensor {bare}: missing from {listing}")
    return {name: found[name] for name in expected}


def _tensor_table(file: Path) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Stored type, shape and byte offset in the file of every tensor, the header checked by safetensors."""
    try:
        with safe_open(str(file), framework="numpy"):
            pass
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            header = json.loads(stream.read(length))
    except (SafetensorError, OSError) as error:
        raise InputError(f"{file}: not a whole safetensors file ({error})") from error
    return {
        name: (entry["dtype"], tuple(entry["shape"]), 8 + length + entry["data_offsets"][0])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _read_tensor(
    file: Path, name: str, dtype: str, shape: tuple[int, ...], offset: int
) -> NDArray[np.floating]:
    """One tensor as float32 or float64. safetensors' numpy reader cannot return BF16, hence the bytes."""
    if dtype not in _STORED_TYPES:
        raise InputError(f"{file}: tensor {name}: type {dtype}, supported: {', '.join(_STORED_TYPES)}")
    raw = np.fromfile(file, dtype=_STORED_TYPES[dtype], count=int(np.prod(shape)), offset=offset)
    if dtype == "BF16":
        values: NDArray[np.floating] = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        values = raw.astype(np.float64 if dtype == "F64" else np.float32, copy=False)
    if not np.isfinite(values).all():
        raise InputError(f"{file}: tensor {name}: holds values that are not finite numbers")
    return values.reshape(shape)


def _weight_files(path: Path) -> list[Path]:
    if (path / _SINGLE).is_file():
        return [path / _SINGLE]
    index = path / _INDEX
    if not index.is_file():
        hint = ""
        if any(path.glob("pytorch_model*.bin")):
            hint = " (found pytorch_model.bin: save the model with safe_serialization=True)"
        raise InputError(f"{path}: found neither {_SINGLE} nor {_INDEX}{hint}")
    weight_map = _read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError(f"{index}: weight_map: expected an object of tensor names and file names")
    files = [path / name for name in sorted({str(value) for value in weight_map.values()})]
    for file in files:
        if file.resolve().parent != path.resolve():
            raise InputError(f"{index}: weight_map: {file.name} is outside the checkpoint folder")
        if not file.is_file():
            raise InputError(f"{file}: missing, {_INDEX} lists it")
    return files


def _digest(files: Iterable[Path]) -> str:
    """SHA-256 over the SHA-256 of each file in order, so that shard boundaries count."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return total.hexdigest()


def _read_json(file: Path) -> dict[str, object]:
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(f"{file}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object, read {type(value).__name__}")
    return value


def _read_metadata(file: Path, config: ModelConfig) -> Metadata:
    if not file.exists():
        return Metadata()
    raw = _read_json(file)
    scales, thresholds = raw.get("norm_scales", {}), raw.get("head_thresholds", [])
    known = norm_names(config)
    if not isinstance(scales, dict) or not all(
        name in known and type(value) is int and abs(value) <= 30 for name, value in scales.items()
    ):
        raise InputError(
            f"{file}: norm_scales: expected norm names and exponents from -30 to 30, read {scales!r}"
        )
    if not isinstance(thresholds, list) or not all(type(value) in (int, float) for value in thresholds):
        raise InputError(f"{file}: head_thresholds: expected a list of numbers, read {thresholds!r}")
    if len(thresholds) not in (0, config.layers):
        raise InputError(f"{file}: head_thresholds: {len(thresholds)} numbers for {config.layers} layers")
    return Metadata(
        norm_scales=MappingProxyType(dict(scales)),
        head_thresholds=tuple(float(value) for value in thresholds),
        source=str(raw.get("source", "")),
        license=str(raw.get("license", "")),
    )
