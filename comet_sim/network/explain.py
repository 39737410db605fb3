"""Turn what pydantic found into one message: file, key path, value read and what is accepted."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from comet_sim.errors import InputError

__all__ = ["explain", "key_path", "suggestion"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def explain(error: ValidationError, where: str, model: type[BaseModel]) -> InputError:
    """Return an `InputError` with a line a problem; `where` is the file, `model` what it was read as."""
    return InputError("\n".join(_line(problem, where, model) for problem in error.errors(include_url=False)))


def key_path(parts: Sequence[str | int]) -> str:
    """Return a path of keys as TOML writes it: `links."a-b".rate`; positions in a list count from 0."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else f'"{part}"'
            text += f".{key}" if text else key
    return text


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return what to say about an unknown word: the closest known one if any, and all that are accepted."""
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}accepted: {', '.join(known)}"


def _line(problem: Any, where: str, model: type[BaseModel]) -> str:
    location: tuple[str | int, ...] = problem["loc"]
    place = f"{where}: {key_path(location)}" if location else where
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key; {suggestion(str(location[-1]), _keys(model, location[:-1]))}"
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, Exception):
        return f"{place}: {cause}"
    text = problem["msg"]
    return f"{place}: {text[:1].lower()}{text[1:]}, but read {problem['input']!r}"


def _keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the keys accepted at `location`, empty where that is no table of known keys."""
    found: Any = model
    for part in location:
        found = _table(found)
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(str(part))
            found = field.annotation if field else None
        else:  # dict[str, T] or list[T]
            found = get_args(found)[-1] if get_args(found) else None
    found = _table(found)
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else []


def _table(annotation: Any) -> Any:
    """Return the alternative of `X | None` that holds keys."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next((arg for arg in get_args(annotation) if arg is not type(None)), None)
    return annotation
