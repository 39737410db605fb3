"""Errors a user can cause or meet, each with the exit code the command line ends with."""

from __future__ import annotations

__all__ = ["CometSimError", "InputError", "PrivacyError"]


class CometSimError(Exception):
    """Base of every error this package raises on purpose; `exit_code` is what the command line returns."""

    exit_code = 1


class InputError(CometSimError):
    """Something the user gave cannot be used; the message names where, what was read and what is accepted."""

    exit_code = 2


class PrivacyError(CometSimError):
    """A party tried to use state that belongs to another party."""
