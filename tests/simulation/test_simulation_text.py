"""The main promise: privately generated text equals the plain model's, for every demo model."""

from __future__ import annotations

from typing import Any

import pytest

from comet_sim.models.demo import DEMO_NAMES, demo_folder, heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.scenario import Scenario, SystemSpec, WorkloadSpec
from comet_sim.simulation import Result, simulate

TOKENS = 8
PROMPTS = heldout().prompts(16).tolist()  # the first 8 prose, then the first 8 code windows


@pytest.fixture(scope="module", params=DEMO_NAMES)
def plain(request: pytest.FixtureRequest) -> PlainDecoder:
    checkpoint = load_demo(request.param)
    return PlainDecoder(checkpoint.config, checkpoint.weights)


def run(model: str, number: int, suite: str, tokens: int = TOKENS, execution: str = "exact") -> Result:
    workload = WorkloadSpec(prompt_ids=tuple(PROMPTS[number]), output_tokens=tokens)
    system = SystemSpec(name="dense", suite=suite)
    return simulate(
        Scenario(model=model, execution=execution, seed=number, workload=workload, systems=(system,))
    )


def check(plain: PlainDecoder, number: int, suite: str) -> None:
    result = run(plain.config.name, number, suite)
    assert result.token_ids == plain.generate(PROMPTS[number], TOKENS)
    assert result.summary["truncation"]["wraps"] == 0
    assert result.summary["warnings"] == []


@pytest.mark.parametrize("number", range(len(PROMPTS)))
def test_text_equals_the_plain_models(plain: PlainDecoder, number: int) -> None:
    """16 prompts fixed beforehand; tools/agreement.py measures more of them, and longer texts."""
    check(plain, number, "crypten-accurate")


@pytest.mark.parametrize("number", [0, 8])
def test_text_with_crypten_s_own_iteration_counts(plain: PlainDecoder, number: int) -> None:
    check(plain, number, "crypten")


def test_shapes_leave_the_exact_runs_trace(plain: PlainDecoder) -> None:
    """Record for record, whichever the architecture: the digest covers every field of every record."""
    exact, shape = (
        run(plain.config.name, 3, "crypten", 3, execution).trace for execution in ("exact", "shape")
    )
    assert exact.digest == shape.digest
    assert exact.messages.num_rows > 1000


def test_plain_model_equals_transformers_on_the_prompts(plain: PlainDecoder) -> None:
    """So that equality with the plain model is equality with `transformers` from the same checkpoint."""
    import torch
    from transformers import AutoModelForCausalLM

    reader: Any = AutoModelForCausalLM
    model = reader.from_pretrained(demo_folder(plain.config.name), dtype=torch.float32).eval()
    with torch.no_grad():
        out = model.generate(
            torch.tensor(PROMPTS),
            do_sample=False,
            max_new_tokens=16,
            eos_token_id=None,
            attention_mask=torch.ones(len(PROMPTS), 16, dtype=torch.long),
        )
    assert out[:, 16:].tolist() == [plain.generate(prompt, 16) for prompt in PROMPTS]
