"""What this project knows of a checkpoint beyond transformers' files: norm scales, head thresholds, origin."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig, norm_names

__all__ = [
    "MAX_EXPONENT",
    "METADATA_FILE",
    "Metadata",
    "read_json",
    "read_metadata",
    "scale_warnings",
    "update_metadata",
]

METADATA_FILE = "comet_sim.json"
MAX_EXPONENT = 30
"""Largest exponent of a norm's scale, either sign."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What stands in a checkpoint's comet_sim.json.

    `norm_scales` maps a norm's canonical name to the exponent e of its public scale 2^e (absent: 0); `norms_outside`
    names the norms that calibration could not bring into the good range. `head_thresholds` holds, per layer, the
    norm of an attention head's output below which it was skipped in training (empty: not trained in).
    """

    norm_scales: Mapping[str, int] = field(default_factory=dict)
    norms_outside: tuple[str, ...] = ()
    head_thresholds: tuple[float, ...] = ()
    source: str = ""
    license: str = ""


def scale_warnings(metadata: Metadata, config: ModelConfig) -> tuple[str, ...]:
    """Say, a sentence each, why norms may go wrong in an exact run: not calibrated, or no scale fits."""
    norms = norm_names(config)
    missing = [name for name in norms if name not in metadata.norm_scales]
    found = []
    if missing:
        which = "no norm" if len(missing) == len(norms) else f"{_listed(missing)}: no norm"
        found.append(
            f"model {config.name}: {which} scales in {METADATA_FILE}, so text may be wrong; "
            "measure them first: python -m comet_sim.models.calibrate FOLDER --text FILE"
        )
    if metadata.norms_outside:
        found.append(
            f"model {config.name}: {_listed(metadata.norms_outside)}: inputs vary too much for any norm scale "
            "(found by calibration), so text may be wrong"
        )
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def read_metadata(file: Path, config: ModelConfig) -> Metadata:
    """Read a comet_sim.json, which may be absent; raises InputError naming file, key and value."""
    if not file.exists():
        return Metadata()
    raw = read_json(file)
    scales, thresholds = raw.get("norm_scales", {}), raw.get("head_thresholds", [])
    outside = raw.get("norms_outside", [])
    known = norm_names(config)
    if not isinstance(scales, dict) or not all(
        name in known and type(value) is int and abs(value) <= MAX_EXPONENT for name, value in scales.items()
    ):
        raise InputError(
            f"{file}: norm_scales: expected norm names and exponents from -{MAX_EXPONENT} to {MAX_EXPONENT}, "
            f"read {scales!r}"
        )
    if not isinstance(outside, list) or not all(name in known for name in outside):
        raise InputError(f"{file}: norms_outside: expected a list of norm names, read {outside!r}")
    if not isinstance(thresholds, list) or not all(type(value) in (int, float) for value in thresholds):
        raise InputError(f"{file}: head_thresholds: expected a list of numbers, read {thresholds!r}")
    if len(thresholds) not in (0, config.layers):
        raise InputError(f"{file}: head_thresholds: {len(thresholds)} numbers for {config.layers} layers")
    return Metadata(
        norm_scales=MappingProxyType(dict(scales)),
        norms_outside=tuple(outside),
        head_thresholds=tuple(float(value) for value in thresholds),
        source=str(raw.get("source", "")),
        license=str(raw.get("license", "")),
    )


def update_metadata(file: Path, changes: Mapping[str, object]) -> None:
    """Write keys into a comet_sim.json and keep its others; the file is whole, old or new, at every moment.

    Raises InputError if it cannot be read or written.
    """
    text = json.dumps({**(read_json(file) if file.exists() else {}), **changes}, indent=1) + "\n"
    try:
        handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            temporary.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o644)
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from None


def read_json(file: Path) -> dict[str, object]:
    """Read a JSON object; raises InputError naming the file."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"{file}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{file}: expected a JSON object, read {type(value).__name__}")
    return value
