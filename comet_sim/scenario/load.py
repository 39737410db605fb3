"""Reads scenarios; what is wrong ends in one message: file, line, key, value read, what is accepted."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from comet_sim.errors import InputError
from comet_sim.models.demo import DEMO_NAMES
from comet_sim.network.explain import describe, key_path, suggestion
from comet_sim.network.profiles import profile_dir
from comet_sim.network.traces import anchor_traces
from comet_sim.scenario.prepare import prepare
from comet_sim.scenario.schema import Scenario, SettingError
from comet_sim.scenario.source import Key, key_lines, line_of, split_key
from comet_sim.scenario.toml import as_toml

__all__ = ["load_scenario", "parse_override", "scenario_dir", "scenario_from_dict", "shipped_scenarios"]

# Settings that exclude each other: an override of one takes the place of the others.
_EXCLUSIVE = (("prompt", "prompt_ids", "prompts", "prompt_tokens"), ("delay", "rtt"), ("rate", "trace"))


def scenario_dir() -> Path:
    """Return the folder of the scenarios that ship with the package."""
    return profile_dir().parent


def shipped_scenarios() -> dict[str, Path]:
    """Return the shipped scenarios by name, such as `demo` or `anchors/crypten-table`."""
    folder = scenario_dir()
    found = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.toml")}
    return {name: found[name] for name in sorted(found) if not name.startswith("networks/")}


def load_scenario(path: Path | str, overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario in the file at `path`, or the shipped one of that name, checked against its model.

    `overrides` maps key paths (`network.rate`, `systems.0.suite`) to values that replace those of the file;
    numpy's numbers and arrays, and paths, count as what they hold.
    Raises `InputError` with a line for each problem.
    """
    file = _find(path)
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a byte order mark first
    except OSError as error:
        raise InputError(f"scenario {file} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"scenario {file} is not UTF-8 text: {error.reason} at byte {error.start}; save it as UTF-8"
        ) from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"scenario {file} is not valid TOML: {error}") from None
    _anchor(table, file.parent)
    return _build(table, overrides or {}, _Origin(str(file), key_lines(text)))


def scenario_from_dict(table: Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Scenario:
    """Return the scenario made of `table`, nested as a scenario file is, checked against its model.

    Raises `InputError` with a line for each problem.
    """
    return _build(as_toml(table), overrides or {}, _Origin("scenario", {}))


def parse_override(text: str) -> tuple[str, Any]:
    """Return key path and value of `key=value`: the value in TOML syntax, or any other text as it stands."""
    key, equals, value = text.partition("=")
    if not equals or split_key(key) is None:
        raise InputError(
            f"override {text!r} is not key=value; write for instance network.rate=1Gbit or "
            "systems.0.suite=crypten"
        )
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key.strip(), value
    return key.strip(), found["value"] if len(found) == 1 else value


class _Origin:
    """Says where a setting was written: line of the file, or the override that set it."""

    def __init__(self, name: str, lines: Mapping[Key, int]) -> None:
        self.name = name
        self.lines = lines
        self.overridden: list[tuple[Key, str]] = []

    def where(self, key: Sequence[str | int]) -> str:
        """Return where `key` was written, and its path unless that says it already."""
        path = key_path(key)
        for own, text in self.overridden:
            if tuple(key[: len(own)]) == own or (key and own[: len(key)] == tuple(key)):
                return f"override {text}" if own == tuple(key) else f"override {text}: {path}"
        line = line_of(self.lines, key)
        where = self.name if line is None else f"{self.name}:{line}"
        return f"{where}: {path}" if path else where


def _build(table: dict[str, Any], overrides: Mapping[str, Any], origin: _Origin) -> Scenario:
    for key, value in overrides.items():
        origin.overridden.append((_override(table, key, as_toml(value)), key))
    _anchor(table, Path())
    try:
        scenario = Scenario.model_validate(table)
        prepare(scenario)
    except ValidationError as error:
        problems = _primary(error)
        raise InputError("\n".join(_explain(problem, origin) for problem in problems)) from None
    except SettingError as error:
        raise InputError(f"{origin.where(error.key)}: {error}") from None
    return scenario


def _primary(error: ValidationError) -> list[Any]:
    """Return the problems themselves: a list whose entries are wrong is not also too short."""
    found = error.errors(include_url=False)
    keys = [problem["loc"] for problem in found]
    return [
        problem
        for problem in found
        if problem["type"] != "too_short"
        or not any(
            len(key) > len(problem["loc"]) and key[: len(problem["loc"])] == problem["loc"] for key in keys
        )
    ]


def _explain(problem: Any, origin: _Origin) -> str:
    key: Key = problem["loc"]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, SettingError):
        key = (*key, *cause.key)
    return f"{origin.where(key)}: {describe(problem, Scenario)}"


def _override(table: dict[str, Any], key: str, value: Any) -> Key:
    """Set `key` in `table`; return its path."""
    parts = split_key(key)
    if parts is None:
        raise InputError(
            f"override {key!r}: not a key path; write for instance network.rate or systems.0.suite"
        )
    at: Any = table
    path: list[str | int] = []
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if isinstance(at, list):
            if not part.isdigit() or int(part) >= len(at):
                have = f"0 to {len(at) - 1}" if at else "none: the list is empty"
                raise InputError(f"override {key}: {key_path(path)}: no entry {part!r}; accepted: {have}")
            step: str | int = int(part)
        elif isinstance(at, dict):
            step = part
            if not last:
                at.setdefault(part, [{}] if not path and part == "systems" else {})
        else:
            raise InputError(f"override {key}: {key_path(path)} is {at!r}, not a table")
        path.append(step)
        if not last:
            at = at[step]
            continue
        for group in _EXCLUSIVE:
            if isinstance(at, dict) and step in group:
                for other in group:
                    at.pop(other, None)
        at[step] = value
    return tuple(path)


def _anchor(table: dict[str, Any], base: Path) -> None:
    """Make paths relative to `base` absolute where they lead somewhere: model, profile, devices, traces."""
    model = table.get("model")
    if isinstance(model, str) and model not in DEMO_NAMES and (base / model).is_dir() and model:
        table["model"] = str((base / model).resolve())
    systems = table.get("systems")
    for system in systems if isinstance(systems, list) else ():
        _anchor_predictor(system, base)
    _anchor_devices(table.get("compute"), base)
    network = table.get("network")
    if not isinstance(network, dict):
        return
    table["network"] = network = anchor_traces(network, base)
    profile = network.get("profile")
    if isinstance(profile, str) and profile.endswith(".toml") and (base / profile).is_file():
        network["profile"] = str((base / profile).resolve())


def _anchor_devices(compute: Any, base: Path) -> None:
    """Make the paths of device files absolute where there is one at `base`."""
    for key, name in list(compute.items()) if isinstance(compute, dict) else ():
        if isinstance(name, str) and name.endswith(".toml") and (base / name).is_file():
            compute[key] = str((base / name).resolve())


def _anchor_predictor(system: Any, base: Path) -> None:
    """Make the predictor's file absolute if there is one at `base`."""
    comet = system.get("comet") if isinstance(system, dict) else None
    predictor = comet.get("predictor") if isinstance(comet, dict) else None
    if not isinstance(predictor, dict):
        return
    file = predictor.get("file")
    if isinstance(file, str) and (base / file).is_file():
        predictor["file"] = str((base / file).resolve())


def _instead(path: Path) -> str:
    """Say what there is in the place of a file."""
    if not path.is_dir():
        return "neither file nor folder"
    kept = path / "scenario.toml"
    return f"a folder; the scenario it was run from is {str(kept)!r}" if kept.is_file() else "a folder"


def _find(path: Path | str) -> Path:
    file = Path(path).expanduser()
    if file.is_file():
        return file
    shipped = shipped_scenarios()
    if str(path) in shipped:
        return shipped[str(path)]
    if file.exists():
        raise InputError(f"scenario {file}: {_instead(file)}; a scenario is a TOML file")
    if file.suffix == ".toml" or len(file.parts) > 1:
        near = difflib.get_close_matches(file.name, [each.name for each in file.parent.glob("*.toml")], n=1)
        hint = f"; did you mean {str(file.with_name(near[0]))!r}?" if near else ""
        raise InputError(f"scenario {file}: no such file{hint}")
    known = suggestion(str(path), tuple(shipped))
    raise InputError(f"scenario {str(path)!r}: no such file, nor a shipped scenario; {known}")
