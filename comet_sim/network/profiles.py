"""Named network profiles: TOML files that ship with the package, or a file of the user's own."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from comet_sim.errors import InputError
from comet_sim.network.explain import explain, suggestion
from comet_sim.network.link_spec import LinkSpec
from comet_sim.network.spec import PARTIES, NetworkSpec, merge
from comet_sim.network.traces import anchor_traces

__all__ = ["PARTIES", "LinkSpec", "NetworkSpec", "list_profiles", "load_profile", "merge", "profile_dir"]


def profile_dir() -> Path:
    """Return the folder of the profiles: package data of an installed wheel, else the source tree."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "data" / "scenarios" / "networks", package.parent / "scenarios" / "networks")
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise InputError(f"the installation is incomplete: no network profiles in {candidates[0]}")


def list_profiles() -> list[str]:
    """Return the names of all shipped profiles, sorted."""
    return sorted(path.stem for path in profile_dir().glob("*.toml"))


def load_profile(name: str, base: Path | None = None) -> NetworkSpec:
    """Return the profile called `name`, or read from a file when `name` ends in `.toml`.

    A file's path is relative to `base`, the current folder by default. Raises `InputError` naming file, key
    path, value read and what is accepted.
    """
    if name.endswith(".toml"):
        return _read((base or Path()) / name)
    known = list_profiles()
    if name not in known:
        raise InputError(
            f"unknown network profile {name!r}; {suggestion(name, known)}, or a path ending in .toml"
        )
    return _read(profile_dir() / f"{name}.toml")


def _read(path: Path) -> NetworkSpec:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"network profile {path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # malformed TOML, or bytes that are not UTF-8
        raise InputError(f"network profile {path} is not valid TOML: {error}") from None
    try:
        return NetworkSpec.model_validate(anchor_traces(table, path.parent))
    except ValidationError as error:
        raise explain(error, str(path), NetworkSpec) from None
