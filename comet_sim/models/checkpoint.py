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

__all__ = ["METADATA_FILE", "Checkpoint", "Metadata", "load_checkpoint", "load_config", "shapes"]

METADATA_FILE = "comet_sim.json"
_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PREFIXES = ("model.decoder.", "decoder.", "model.")
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


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of every weight under its canonical name, in the order a forward pass uses them."""
    d, inner, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    result: dict[str, tuple[int, ...]] = {
        "embed": (config.vocab, d),
        "positions": (config.max_positions + config.position_offset, d),
    }

    def norm(name: str) -> None:
        result[f"{name}/weight"] = (d,)
        result[f"{name}/bias"] = (d,)

    def linear(name: str, rows: int, columns: int) -> None:
        result[f"{name}/weight"] = (rows, columns)
        result[f"{name}/bias"] = (columns,)

    for i in range(config.layers):
        norm(f"layer{i}/attention/norm")
        linear(f"layer{i}/attention/q", d, inner)
        linear(f"layer{i}/attention/k", d, kv)
        linear(f"layer{i}/attention/v", d, kv)
        linear(f"layer{i}/attention/o", inner, d)
        norm(f"layer{i}/ffn/norm")
        linear(f"layer{i}/ffn/fc1", d, config.ffn)
        linear(f"layer{i}/ffn/fc2", config.ffn, d)
    norm("final_norm")
    if not config.tied:
        result["lm_head"] = (config.vocab, d)
    return result


def load_config(folder: Path | str) -> ModelConfig:
    """Read a checkpoint folder's configuration only; raises InputError naming the file."""
    path = Path(folder)
    if not path.is_dir():
        raise InputError(
            f"{path}: not a checkpoint folder (expected a folder with config.json and {_SINGLE})"
        )
    return ModelConfig.from_hf(
        _read_json(path / "config.json"), str(path / "config.json"), path.resolve().name
    )


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


def _hf_names(config: ModelConfig) -> dict[str, str]:
    """Transformers' OPT tensor names, without prefix, to canonical names."""
    parts = {
        "self_attn_layer_norm": "attention/norm",
        "self_attn.q_proj": "attention/q",
        "self_attn.k_proj": "attention/k",
        "self_attn.v_proj": "attention/v",
        "self_attn.out_proj": "attention/o",
        "final_layer_norm": "ffn/norm",
        "fc1": "ffn/fc1",
        "fc2": "ffn/fc2",
    }
    names = {"embed_tokens.weight": "embed", "embed_positions.weight": "positions"}
    for i in range(config.layers):
        for theirs, ours in parts.items():
            for kind in ("weight", "bias"):
                names[f"layers.{i}.{theirs}.{kind}"] = f"layer{i}/{ours}/{kind}"
    for kind in ("weight", "bias"):
        names[f"final_layer_norm.{kind}"] = f"final_norm/{kind}"
    if not config.tied:
        names["lm_head.weight"] = "lm_head"
    return names


def _canonical(config: ModelConfig, files: Iterable[Path]) -> dict[str, NDArray[np.floating]]:
    """Read all weight files, checking that they hold exactly the tensors the configuration asks for."""
    names, expected = _hf_names(config), shapes(config)
    found: dict[str, NDArray[np.floating]] = {}
    for file in files:
        for stored, (dtype, shape, offset) in _tensor_table(file).items():
            prefix = next((p for p in _PREFIXES if stored.startswith(p)), "")
            bare = stored.removeprefix(prefix)
            if bare == "lm_head.weight" and config.tied:
                continue  # Some writers store the tied matrix twice; transformers reads the embedding.
            name = names.get(bare)
            if name is None:
                raise InputError(
                    f"{file}: tensor {stored}: not part of an {config.architecture} model with "
                    f"{config.layers} layers"
                )
            if name in found:
                raise InputError(f"{file}: tensor {stored}: stored twice")
            transposed = name.startswith("layer") and len(shape) == 2
            if (shape[::-1] if transposed else shape) != expected[name]:
                want = expected[name][::-1] if transposed else expected[name]
                raise InputError(f"{file}: tensor {stored}: shape {shape}, config.json asks for {want}")
            array = _read_tensor(file, stored, dtype, shape, offset)
            found[name] = np.ascontiguousarray(array.T) if transposed else array
            found[name].flags.writeable = False
    bare_of = {ours: theirs for theirs, ours in names.items()}
    for name in expected:
        if name not in found:
            listing = ", ".join(file.name for file in files)
            raise InputError(f"{file.parent}: tensor {bare_of[name]}: missing from {listing}")
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
