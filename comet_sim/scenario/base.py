"""What every table of a scenario is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from comet_sim.errors import InputError

__all__ = ["SettingError", "Table"]


class SettingError(InputError, ValueError):
    """A setting cannot be honoured; `key` is its path in the scenario.

    It is a `ValueError` too, so that pydantic reports it with all other problems of the scenario.
    """

    def __init__(self, key: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.key = key


class Table(BaseModel):
    """A table whose keys are all known and whose values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
