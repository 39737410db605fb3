"""Loading transformers checkpoints (safetensors) into named numpy arrays, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig
from comet_sim.models.hf_config import read_hf_config
from comet_sim.models.metadata import METADATA_FILE, Metadata, read_json, read_metadata, scale_warnings
from comet_sim.models.tensors import hf_tensors, is_buffer, shapes, without_prefix

__all__ = ["Checkpoint", "load_checkpoint", "load_config", "load_metadata"]

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
# BF16 is read as its raw 16 bits: they are the upper half of a float32.
_STORED_TYPES: Mapping[str, str] = MappingProxyType({"F16": "<f2", "BF16": "<u2", "F32": "<f4", "F64": "<f8"})


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model's configuration and its weights (float32 or float64) under canonical names.

    Linear weights are (in, out), so y = x @ weight + bias; `embed` and `lm_head` are (vocab, hidden).
    A tied head has no array of its own: `config.head_name` names the one to use.
    `tokenizer` is None when the folder has no tokenizer.json. `digest` is a SHA-256 over config and weight
    files. `stored` says where each weight came from, "file: tensor name". `warnings` are sentences that a user who
    runs this model exactly should read.
    """

    config: ModelConfig
    weights: Mapping[str, NDArray[np.floating]]
    tokenizer: Path | None
    digest: str
    metadata: Metadata
    stored: Mapping[str, str]
    warnings: tuple[str, ...]

    def check_range(self, fraction_bits: int) -> None:
        """Raise InputError, naming file, tensor and value, for a weight too large for fixed-point products.

        The product of a weight and 1 has 2 * fraction_bits fractional bits before its truncation, so a weight of
        2^(63 - 2 * fraction_bits) or more wraps around there.
        """
        limit = 63 - 2 * fraction_bits
        for name, weight in self.weights.items():
            largest = weight.flat[int(np.abs(weight).argmax())]
            if abs(float(largest)) >= 2.0**limit:
                raise InputError(
                    f"{self.stored[name]}: read {float(largest):.6g}, too large for products in fixed point with "
                    f"{fraction_bits} fractional bits; accepted: less than 2^{limit} in size, or a smaller "
                    "protocol.fraction_bits"
                )


def load_config(folder: Path | str) -> ModelConfig:
    """Read a checkpoint folder's configuration only; raises InputError naming the file."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"{path}: not a checkpoint folder (expected a folder with config.json and {_SINGLE})"
        )
    file = path / "config.json"
    return read_hf_config(read_json(file), str(file), path.resolve().name)


def load_metadata(folder: Path | str, config: ModelConfig) -> Metadata:
    """Read what a checkpoint folder's comet_sim.json says, nothing if it has none."""
    return read_metadata(Path(folder) / METADATA_FILE, config)


def load_checkpoint(folder: Path | str) -> Checkpoint:
    """Load a transformers checkpoint folder with safetensors weights, whole or sharded.

    Weights stored as F16, BF16 or F32 become float32 and F64 stays, all exactly. Raises InputError naming the
    file when a file or tensor is missing, unknown, of another shape, or damaged.
    """
    path = Path(folder)
    config = load_config(path)
    files = _weight_files(path)
    weights, stored = _canonical(config, files)
    tokenizer = path / "tokenizer.json"
    metadata = load_metadata(path, config)
    return Checkpoint(
        config=config,
        weights=MappingProxyType(weights),
        tokenizer=tokenizer if tokenizer.is_file() else None,
        digest=_digest([path / "config.json", *files]),
        metadata=metadata,
        stored=MappingProxyType(stored),
        warnings=scale_warnings(metadata, config),
    )


def _canonical(
    config: ModelConfig, files: Iterable[Path]
) -> tuple[dict[str, NDArray[np.floating]], dict[str, str]]:
    """Read all weight files, checking that they hold exactly the tensors the configuration asks for.

    Returns the weights, and which file and tensor each stood in.
    """
    known, expected = hf_tensors(config), shapes(config)
    found: dict[str, NDArray[np.floating]] = {}
    places: dict[str, str] = {}
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
                places[part] = f"{file}: tensor {name}"
    for bare, stored in known.items():
        if stored.parts[0] not in found:
            listing = ", ".join(file.name for file in files)
            raise InputError(f"{file.parent}: tensor {bare}: missing from {listing}")
    return {name: found[name] for name in expected}, places


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
    weight_map = read_json(index).get("weight_map")
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
