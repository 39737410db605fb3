"""The public plan of a run: what every party knows before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from comet_sim.mpc.settings import Truncation

__all__ = ["SERVERS", "Plan"]

SERVERS = ("server0", "server1")


@dataclass(frozen=True, slots=True)
class Plan:
    """Public facts of one inference: lengths, the vocabulary, who learns the logits.

    `batch` prompts of `prompt_tokens` tokens each are served together.
    `reveal`: the `user` picks each token (default), or the `servers` open the logits and pick it, as the
    reference framework's decoder does. `stop_at_eos` ends the run early and tells the servers so; a batch has one
    end for all, so it must be 1 then (ValueError). `truncation`: how products are rescaled.
    """

    prompt_tokens: int
    output_tokens: int
    vocab: int
    fraction_bits: int = 16
    reveal: Literal["user", "servers"] = "user"
    stop_at_eos: bool = False
    eos_id: int | None = None
    batch: int = 1
    truncation: Truncation = "local"

    def __post_init__(self) -> None:
        if self.stop_at_eos and self.batch > 1:
            raise ValueError(f"a batch of {self.batch} cannot stop at the end of one of its sequences")

    def rows(self, token: int) -> int:
        """Return how many one-hot rows lead to output token `token`: all of the prompts, then one a sequence."""
        return self.batch * (1 if token else self.prompt_tokens)
