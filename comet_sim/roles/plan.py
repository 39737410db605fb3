"""The public plan of a run: what every party knows before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["SERVERS", "Plan"]

SERVERS = ("server0", "server1")


@dataclass(frozen=True, slots=True)
class Plan:
    """Public facts of one inference: lengths, the vocabulary, who learns the logits.

    `reveal`: the `user` picks each token (default), or the `servers` open the logits and pick it, as the
    reference framework's decoder does. `stop_at_eos` ends the run early and tells the servers so.
    """

    prompt_tokens: int
    output_tokens: int
    vocab: int
    fraction_bits: int = 16
    reveal: Literal["user", "servers"] = "user"
    stop_at_eos: bool = False
    eos_id: int | None = None
