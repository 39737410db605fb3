"""Device profiles: what parties compute on, each figure with its source; shipped ones, or a file of one's own."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from comet_sim.actors import DeviceProfile
from comet_sim.errors import InputError
from comet_sim.network.explain import explain, suggestion

__all__ = ["DEVICES", "DeviceSpec", "device_file", "load_device"]

_MOST = 10**18  # the cost of an operation stays an exact integer anyway; above this a figure is a slip


class DeviceSpec(BaseModel):
    """One device as it stands in a file; 0 means unlimited."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ring_multiply_adds_per_second: Annotated[int, Field(ge=0, le=_MOST, strict=True)]
    memory_bytes_per_second: Annotated[int, Field(ge=0, le=_MOST, strict=True)]
    launch_ns: Annotated[int, Field(ge=0, le=10**9, strict=True)]
    source: str = ""

    def profile(self, name: str) -> DeviceProfile:
        """Return what a party computes with."""
        return DeviceProfile(
            name,
            self.ring_multiply_adds_per_second,
            self.memory_bytes_per_second,
            self.launch_ns,
            self.source,
        )


def load_device(name: str) -> DeviceProfile:
    """Return the shipped device called `name`, or the one in a file when `name` ends in `.toml`.

    Raises `InputError` naming file, key, value read and what is accepted.
    """
    if not name.endswith(".toml"):
        if name not in DEVICES:
            raise InputError(
                f"unknown device {name!r}; {suggestion(name, tuple(DEVICES))}, or a path ending in .toml"
            )
        return DEVICES[name]
    path = Path(name).expanduser()
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"device {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # malformed TOML, or bytes that are not UTF-8
        raise InputError(f"device {path} is not valid TOML: {error}") from None
    return _read(table, str(path)).profile(path.stem)


def _read(table: Any, where: str) -> DeviceSpec:
    try:
        return DeviceSpec.model_validate(table)
    except ValidationError as error:
        raise explain(error, where, DeviceSpec) from None


def device_file(profile: DeviceProfile, comments: Iterable[str] = ()) -> str:
    """Return the text of a device file: the figures of a profile, below comments of one line each."""
    figures = {
        "ring_multiply_adds_per_second": profile.ring_ops,
        "memory_bytes_per_second": profile.memory,
        "launch_ns": profile.launch,
        "source": profile.source,
    }
    lines = [*(f"# {line}".rstrip() for line in comments), ""]
    lines += (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in figures.items())
    return "\n".join(lines) + "\n"


def _shipped() -> dict[str, DeviceProfile]:
    file = Path(__file__).resolve().parent / "data" / "devices.toml"
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: _read(table, f"devices.toml: {name}").profile(name) for name, table in tables.items()}


DEVICES: dict[str, DeviceProfile] = _shipped()
"""Devices that ship with the package, by name."""
