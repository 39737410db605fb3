"""`run --check`: the text of an exact run beside what plain transformers generates from its checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from comet_sim.errors import InputError
from comet_sim.scenario import Prepared, Scenario

__all__ = ["Comparison", "compare_with_plain", "plain_generate", "require_plain_model"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Token ids of the private run and of the plain model, and the plain model's text."""

    private: tuple[int, ...]
    plain: tuple[int, ...]
    plain_text: str | None

    @property
    def equal(self) -> bool:
        """Whether the tokens are the same, all of them."""
        return self.private == self.plain

    @property
    def first_difference(self) -> int | None:
        """Position of the first output token that differs, from 0; None if none does."""
        if self.equal:
            return None
        both = zip(self.private, self.plain, strict=False)
        shorter = min(len(self.private), len(self.plain))
        return next((i for i, (ours, theirs) in enumerate(both) if ours != theirs), shorter)

    def document(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "equal": self.equal,
            "first_difference": self.first_difference,
            "plain_token_ids": list(self.plain),
            "plain_text": self.plain_text,
        }


def require_plain_model(scenario: Scenario) -> None:
    """Raise `InputError`, before a run that may take long, if its text cannot be compared."""
    if scenario.execution != "exact":
        raise InputError('--check compares text, but a shape run has none; accepted: execution = "exact"')
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise InputError(f'--check needs {name}, which is not installed: pip install "comet-sim[models]"')


def compare_with_plain(
    prepared: Prepared, scenario: Scenario, summaries: dict[str, dict[str, Any]]
) -> dict[str, Comparison]:
    """Return the comparison of each system's tokens with the plain model's; needs torch and transformers."""
    plain = plain_generate(prepared, scenario)
    text = prepared.tokenizer.decode(plain) if prepared.tokenizer else None
    return {label: Comparison(tuple(each["token_ids"]), plain, text) for label, each in summaries.items()}


def plain_generate(prepared: Prepared, scenario: Scenario) -> tuple[int, ...]:
    """Return the tokens transformers generates greedily, in float32, from the scenario's prompt."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as hf_logging

    quiet: Any = hf_logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    ids = prepared.prompt.ids
    assert ids is not None, "exact runs always have token ids"
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(prepared.model.folder), dtype=torch.float32, local_files_only=True
    )
    model.eval()
    if scenario.workload.stop == "length":
        model.generation_config.eos_token_id = None
    prompt = torch.tensor([ids])
    with torch.no_grad():
        found = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=scenario.workload.output_tokens,
            do_sample=False,
        )
    return tuple(int(item) for item in found[0, len(ids) :])
