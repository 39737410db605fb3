"""Choosing among a suite's conventions by name, for suites that are plain dataclasses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from comet_sim.errors import InputError

__all__ = ["checked", "replaced"]

T = TypeVar("T")


def checked(name: str, choices: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise InputError for a choice that the suite `name` does not have."""
    known = tuple(known)
    for choice in choices:
        if choice not in known:
            raise InputError(f"suite {name!r} has no choice {choice!r}; it has {', '.join(known)}")


def replaced(suite: T, choices: Mapping[str, Any]) -> T:
    """Return the suite, a frozen dataclass, with other values of some fields."""
    return cast(T, replace(cast(Any, suite), **choices))
