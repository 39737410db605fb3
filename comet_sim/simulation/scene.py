"""What may be looked at while a run is played: public facts, counters of links, what both servers know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from comet_sim.comet.record import SparsityRecord
from comet_sim.events import Names, Observer, Phase
from comet_sim.models.config import ModelConfig
from comet_sim.network.link import Link

__all__ = ["Decode", "Scene", "Spectator"]

Decode = Callable[[list[int]], str]
"""Token ids to text."""


@dataclass(frozen=True)
class Scene:
    """One run being played, to be read and never changed; no share is in it."""

    names: Names
    config: ModelConfig
    parties: tuple[str, ...]
    links: Mapping[tuple[str, str], Link]
    """By (from, to); their counters say what has been put on them."""
    now: Callable[[], int]
    """The virtual clock, ns."""
    phase: Callable[[], Phase]
    sequences: list[list[int]]
    """Token ids the user knows so far, a list a sequence."""
    token_times: list[int]
    record: SparsityRecord | None
    """What server 0 saw under Comet, masks in their secret orders; None in a dense run."""
    stock: Callable[[], int]
    """Correction elements server 1 holds."""
    stopping: Callable[[], bool]
    """Whether the run has been told to end: whoever holds it up must let it go."""


class Spectator(Protocol):
    """Who watches a run as it is played, and may hold it up between two messages, outside of virtual time."""

    def begin(self, facts: Mapping[str, Any], decode: Decode | None, observer: Observer) -> Observer:
        """Take what is known of the run beforehand; return an observer that passes all on to `observer`."""

    def attend(self, scene: Scene) -> None:
        """Take the run itself, before its first event."""
