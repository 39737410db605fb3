"""Errors a user can cause or meet, each with the exit code the command line ends with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["CometSimError", "InputError", "PrivacyError", "ungrouped"]


class CometSimError(Exception):
    """Base of every error this package raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(CometSimError):
    """Something the user gave cannot be used; the message names where, what was read and what is accepted."""

    exit_code = 2


class PrivacyError(CometSimError):
    """A party tried to use state that belongs to another party."""


@contextmanager
def ungrouped() -> Iterator[None]:
    """Raise the one error that a task group has wrapped as itself, not as an ExceptionGroup around it.

    Several errors that are all made on purpose become the first, the others' messages its notes. A group with
    anything else beside another error is a bug and stays whole.
    """
    try:
        yield
        return
    except BaseExceptionGroup as group:
        errors = list(dict.fromkeys(_leaves(group)))
        if len(errors) > 1 and not all(isinstance(error, CometSimError) for error in errors):
            raise
    first = errors[0]
    for text in dict.fromkeys(map(str, errors[1:])):
        if text != str(first):
            first.add_note(f"and: {text}")
    context = first.__context__
    try:
        raise first
    finally:
        first.__context__ = context  # its own, instead of the group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
