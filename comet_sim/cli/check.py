"""`run --check`: the text of an exact run beside what plain transformers generates from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from comet_sim.comet.indexing import Part
from comet_sim.comet.plain import SkippingDecoder, all_active, by_part, in_order
from comet_sim.errors import InputError
from comet_sim.mpc.suite import Reference
from comet_sim.scenario import Prepared, Scenario
from comet_sim.scenario.program import suite_of

__all__ = ["Comparison", "compare_with_plain", "differs_at", "plain_generate", "require_plain_model"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Token ids of the private run and of the plain model, and the plain model's text."""

    private: tuple[int, ...]
    plain: tuple[int, ...]
    plain_text: str | None
    reference: str = "plain transformers"
    transformers: tuple[int, ...] | None = None
    """What plain transformers says, where the reference is a model with functions replaced."""

    @property
    def equal(self) -> bool:
        """Whether the tokens are the same, all of them."""
        return self.private == self.plain

    @property
    def first_difference(self) -> int | None:
        """Position of the first output token that differs, from 0; None if none does."""
        return differs_at(self.private, self.plain)

    def document(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        beside: dict[str, Any] = {}
        if self.transformers is not None:
            beside["transformers"] = {
                "first_difference": differs_at(self.private, self.transformers),
                "token_ids": list(self.transformers),
            }
        return {
            "equal": self.equal,
            "reference": self.reference,
            "first_difference": self.first_difference,
            "plain_token_ids": list(self.plain),
            "plain_text": self.plain_text,
            **beside,
        }


def differs_at(ours: Sequence[int], theirs: Sequence[int]) -> int | None:
    """Return where two texts first differ, from 0; None if they do not."""
    if tuple(ours) == tuple(theirs):
        return None
    both = enumerate(zip(ours, theirs, strict=False))
    return next((i for i, (one, other) in both if one != other), min(len(ours), len(theirs)))


def require_plain_model(scenario: Scenario) -> None:
    """Raise `InputError`, before a run that may take long, if its text cannot be compared."""
    if scenario.execution != "exact":
        raise InputError('--check compares text, but a shape run has none; accepted: execution = "exact"')
    for name in ("torch", "transformers"):
        if find_spec(name) is None:
            raise InputError(f'--check needs {name}, which is not installed: pip install "comet-sim[models]"')


def compare_with_plain(
    prepared: Prepared,
    scenario: Scenario,
    summaries: dict[str, dict[str, Any]],
    masks: dict[str, Sequence[tuple[Part, int, Any]]],
) -> dict[str, Comparison]:
    """Return the comparison of each system's tokens with the plain model's; needs torch and transformers.

    A system that skipped something (`masks`, as opened) is compared with the plain model that skips the same, one
    whose suite replaces functions with the plain model that has the same replacements, in float64; what plain
    transformers says is kept beside it. Of several prompts served together each is compared, under the system's
    name and its position, such as `dense[0]`.
    """
    found: dict[str, Comparison] = {}
    dense: list[tuple[int, ...]] | None = None
    suites = {system.label: suite_of(system) for system in scenario.systems}
    several = scenario.workload.batch > 1
    for label, each in summaries.items():
        replaced, skipped = suites[label].reference, masks.get(label)
        if replaced is not None or not skipped:
            dense = dense or plain_generate(prepared, scenario)
        plain, reference = dense, "plain transformers"
        if replaced is not None or skipped:
            plain = _own_generate(prepared, scenario, skipped or (), replaced)
            parts = [replaced.what] if replaced is not None else []
            parts += ["the same neurons and heads skipped"] if skipped else []
            reference = f"the plain model with {', and with '.join(parts)}"
        assert plain is not None
        private = each["token_ids"] if several else [each["token_ids"]]
        for i, (ours, theirs) in enumerate(zip(private, plain, strict=True)):
            text = prepared.tokenizer.decode(theirs) if prepared.tokenizer else None
            name = f"{label}[{i}]" if several else label
            beside = dense[i] if dense and replaced is not None else None
            found[name] = Comparison(tuple(ours), theirs, text, reference, beside)
    return found


def _own_generate(
    prepared: Prepared,
    scenario: Scenario,
    masks: Sequence[tuple[Part, int, Any]],
    replaced: Reference | None,
) -> list[tuple[int, ...]]:
    """Return the tokens our plain float64 model generates greedily, by prompt.

    With the masks that were opened, if any, and with the functions a suite replaces.
    """
    checkpoint, batch = prepared.model.load(), len(prepared.prompts)
    parts = {part for part, _, _ in masks}
    every = []
    for i, prompt in enumerate(prepared.prompts):
        source = in_order((part, layer, np.split(mask, batch)[i]) for part, layer, mask in masks)
        chosen = by_part(
            ffn=source if "ffn" in parts else all_active, heads=source if "heads" in parts else all_active
        )
        plain = SkippingDecoder(checkpoint.config, checkpoint.weights, chosen, reference=replaced)
        assert prompt.ids is not None, "exact runs always have token ids"
        found = plain.generate(list(prompt.ids), scenario.workload.output_tokens)
        if scenario.workload.stop == "eos" and checkpoint.config.eos_id in found:
            found = found[: found.index(checkpoint.config.eos_id) + 1]
        every.append(tuple(found))
    return every


def plain_generate(prepared: Prepared, scenario: Scenario) -> list[tuple[int, ...]]:
    """Return the tokens transformers generates greedily, in float32, from each of the scenario's prompts."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as hf_logging

    quiet: Any = hf_logging
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    assert prepared.prompt.ids is not None, "exact runs always have token ids"
    model: Any = AutoModelForCausalLM.from_pretrained(
        str(prepared.model.folder), dtype=torch.float32, local_files_only=True
    )
    model.eval()
    if scenario.workload.stop == "length":
        model.generation_config.eos_token_id = None
    prompts = torch.tensor([prompt.ids for prompt in prepared.prompts])
    with torch.no_grad():
        found = model.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=scenario.workload.output_tokens,
            do_sample=False,
        )
    return [tuple(int(item) for item in row[prompts.shape[1] :]) for row in found]
