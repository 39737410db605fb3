"""What a transcript is made of: rounds between the servers, and what is dealt for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from comet_sim.mpc.correlated import Kind, Layout
from comet_sim.mpc.tensor import Blank

__all__ = ["Deal", "Round", "Transcript"]


@dataclass(slots=True)
class Deal:
    """Randomness a protocol takes: where (relative op path, offset of its position) and what."""

    path: str
    offset: int
    kind: Kind
    form: Layout


@dataclass(slots=True)
class Round:
    """Local work, then one exchange: op path relative to the protocol's, offset of its position, buffer."""

    path: str = ""
    offset: int = -1
    buffer: Blank = field(default_factory=lambda: Blank(0))
    launches: int = 0
    ring_ops: int = 0
    moved: int = 0
    peak: int = -1
    peak_path: str = ""


@dataclass(slots=True)
class Transcript:
    """All rounds of a protocol on operands of given shapes; the last round is work without an exchange."""

    rounds: list[Round]
    tail: Round
    deals: list[Deal]
    corrected: int
    """Correction elements server 1 uses up."""
    steps: int
    result: Any
