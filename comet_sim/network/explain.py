"""Turn what pydantic found into one message: file, key path, value read and what is accepted."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from comet_sim.errors import InputError

__all__ = ["describe", "explain", "key_path", "suggestion"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_CHOICE = re.compile(r"'([^']*)'|([^\s',]+)(?=,| or |$)")
_SHOWN = 80
"""Most characters of a value that a message repeats."""

_KINDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of less than 64 bits",
    "int_type": "a whole number",
    "list_type": "a list",
    "string_sub_type": "text, in quotes",
    "string_type": "text, in quotes",
    "tuple_type": "a list",
}
_BOUNDS = {
    "greater_than": ("gt", "above {}"),
    "greater_than_equal": ("ge", "{} or more"),
    "less_than": ("lt", "below {}"),
    "less_than_equal": ("le", "{} or less"),
    "string_too_long": ("max_length", "at most {} characters"),
    "string_too_short": ("min_length", "text of {} character or more"),
    "too_long": ("max_length", "a list of at most {}"),
    "too_short": ("min_length", "a list of {} or more"),
}
_TABLES = ("dict_type", "mapping_type", "model_attributes_type", "model_type")


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


def describe(problem: Any, model: type[BaseModel]) -> str:
    """Return what is wrong in words of ours: the value read and what is accepted; `problem` is one of pydantic's."""
    location: tuple[str | int, ...] = problem["loc"]
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key; {suggestion(str(location[-1]), _keys(model, location[:-1]))}"
    if kind == "missing":
        return "this key is required, but it is missing"
    if isinstance(context.get("error"), Exception):
        return str(context["error"])
    read = f"read {_shown(problem['input'])}"
    if kind in _KINDS:
        return f"{read}; accepted: {_KINDS[kind]}"
    if kind in _BOUNDS:
        name, accepted = _BOUNDS[kind]
        return f"{read}; accepted: {accepted.format(context[name])}"
    if kind == "literal_error":
        choices = ["".join(found) for found in _CHOICE.findall(context["expected"])]
        return f"{read}; {suggestion(str(problem['input']), choices)}"
    if kind in _TABLES:
        keys = _keys(model, location)
        return f"{read}; accepted: a table" + (f" with keys of {', '.join(keys)}" if keys else "")
    text = problem["msg"].replace("Input should be a valid", "accepted: a").replace("Input should", "it must")
    return f"{read}; {text[:1].lower()}{text[1:]}"


def _line(problem: Any, where: str, model: type[BaseModel]) -> str:
    location: tuple[str | int, ...] = problem["loc"]
    place = f"{where}: {key_path(location)}" if location else where
    return f"{place}: {describe(problem, model)}"


def _shown(value: Any) -> str:
    """Return a value much as TOML writes it, a long one by its beginning."""
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Return the keys accepted at `location`, empty where that is no table of known keys."""
    found: Any = model
    for part in location:
        found = _table(found)
        if isinstance(found, type) and issubclass(found, BaseModel):
            field = found.model_fields.get(str(part))
            found = field.annotation if field else None
        else:  # dict[str, T], list[T] or tuple[T, ...]
            found = next((arg for arg in reversed(get_args(found)) if arg is not Ellipsis), None)
    found = _table(found)
    return list(found.model_fields) if isinstance(found, type) and issubclass(found, BaseModel) else []


def _table(annotation: Any) -> Any:
    """Return the alternative of `X | None` that holds keys."""
    if get_origin(annotation) in (Union, types.UnionType):
        return next((arg for arg in get_args(annotation) if arg is not type(None)), None)
    return annotation
