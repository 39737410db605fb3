"""What one screen shows: figures and small arrays, whether a run goes on or is replayed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from comet_sim.dashboard.tally import Tally

__all__ = ["CachePicture", "Exchange", "Ledger", "Link", "Mask", "MaskPicture", "Moment", "View", "exchanges"]

Mask = NDArray[np.bool_]

HERE, HOLE, REFILLED, PREFETCHED = range(4)
"""What an entry of a KV cache is."""


class Moment(NamedTuple):
    """One delivered message, names as text, times in ns."""

    phase: int
    path: str
    src: str
    dst: str
    payload: int
    depth: int
    created: int
    queued: int
    host: int
    stall: int
    serialise: int
    propagate: int
    delivered: int


class Exchange(NamedTuple):
    """Messages of one op at one depth: bytes from the first party to the second and back, and who waited."""

    path: str
    left: str
    right: str
    there: int
    back: int
    waiter: str
    awaited: str
    why: str
    """What most of the time went into."""
    duration: int


class Link(NamedTuple):
    """One direction: what is under way, the share of the phase it was busy, and that share by step of time."""

    src: str
    dst: str
    messages: int | None
    """Under way; None where nobody can say."""
    payload: int | None
    busy: float
    levels: NDArray[np.float64]
    total: int
    """Payload bytes of the phase so far."""


class Party(NamedTuple):
    """A party: what it does now, the share of the phase its device worked, and that share by step of time."""

    name: str
    doing: str
    busy: float
    levels: NDArray[np.float64]


@dataclass(frozen=True)
class MaskPicture:
    """Which neurons and heads the last mask of a layer has active."""

    layer: int
    order: str
    """Whose order the entries stand in."""
    neurons: Mask | None = None
    heads: Mask | None = None


@dataclass(frozen=True)
class CachePicture:
    """Entries of one layer's KV cache (heads, tokens): here, hole, refilled, prefetched; and counts of the run."""

    layer: int
    entries: NDArray[np.int8]
    counts: str = ""


class Ledger(NamedTuple):
    """One line of the reveal ledger."""

    what: str
    audience: str
    times: int
    elements: int


@dataclass
class View:
    """All that a screen shows."""

    title: str
    system: str
    about: str
    tally: Tally
    phase: int
    clock: int
    state: str
    pace: str
    factor: float | None
    """Virtual seconds a second of wall clock, measured."""
    steps: tuple[int, int]
    """Output tokens known, and all of them."""
    text: tuple[str, str]
    """Prompt, and what came out so far."""
    now: str
    waits: str
    parties: list[Party] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    rounds: list[Exchange] = field(default_factory=list)
    masks: MaskPicture | str = ""
    """The picture, or why there is none."""
    cache: CachePicture | str = ""
    stock: list[str] = field(default_factory=list)
    ledger: list[Ledger] = field(default_factory=list)
    replay: float | None = None
    """In a replay, the share of the run that lies behind."""
    prompt: str | None = None
    """What is being typed."""
    message: str = ""
    """What the last key led to."""
    starts: Sequence[int] = (0, 0, 0)
    """When each phase began, ns; phases to come have the present."""


_WHY = (
    ("queued", "queue"),
    ("host", "host"),
    ("stall", "window"),
    ("serialise", "bytes"),
    ("propagate", "distance"),
)


def exchanges(moments: Iterable[Moment], most: int) -> list[Exchange]:
    """Group messages, in the order of delivery, into exchanges; the latest `most`, latest first."""
    grouped: dict[tuple[object, ...], list[Moment]] = {}
    for each in moments:
        left, right = sorted((each.src, each.dst))
        about = each.path if each.depth else each.path.split("/")[0]
        grouped.setdefault((each.phase, about, each.depth, left, right), []).append(each)
    found = sorted(grouped.values(), key=lambda group: group[-1].delivered, reverse=True)
    return [_exchange(group) for group in found[:most]]


def _exchange(group: list[Moment]) -> Exchange:
    last = group[-1]
    left, right = sorted((last.src, last.dst))
    begin = min(each.created for each in group)
    parts = {word: getattr(last, name) for name, word in _WHY}
    parts["late start"] = last.created - begin
    return Exchange(
        last.path,
        left,
        right,
        sum(each.payload for each in group if each.src == left),
        sum(each.payload for each in group if each.src == right),
        last.dst,
        last.src,
        max(parts, key=lambda word: parts[word]),
        last.delivered - begin,
    )
