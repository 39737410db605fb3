"""The main promise: privately generated text equals the plain model's."""

import pytest

from comet_sim.models.demo import heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.scenario import Scenario, SystemSpec, WorkloadSpec
from comet_sim.simulation import simulate

TOKENS = 16
PROMPTS = heldout().prompts(16).tolist()  # the first 8 prose, then the first 8 code windows


@pytest.fixture(scope="module")
def plain():
    checkpoint = load_demo()
    return PlainDecoder(checkpoint.config, checkpoint.weights)


@pytest.mark.parametrize("number", range(len(PROMPTS)))
@pytest.mark.parametrize("suite", ["crypten", "crypten-accurate"])
def test_text_equals_the_plain_models(plain, suite, number):
    """16 prompts fixed beforehand; on this build CrypTen's own iteration counts suffice for all of them."""
    prompt = PROMPTS[number]
    result = simulate(
        Scenario(
            model="opt-demo",
            seed=number,
            workload=WorkloadSpec(prompt_ids=tuple(prompt), output_tokens=TOKENS),
            systems=(SystemSpec(name="dense", suite=suite),),
        )
    )
    assert result.token_ids == [int(token) for token in plain.generate(prompt, TOKENS)]
    assert result.summary["truncation"]["wraps"] == 0


def test_plain_model_equals_transformers_on_the_prompts(plain):
    """So that equality with the plain model is equality with `transformers` from the same checkpoint."""
    import torch
    from transformers import OPTForCausalLM

    from comet_sim.models.demo import demo_folder

    model = OPTForCausalLM.from_pretrained(demo_folder(), dtype=torch.float32).eval()
    with torch.no_grad():
        out = model.generate(
            torch.tensor(PROMPTS),
            do_sample=False,
            max_new_tokens=TOKENS,
            eos_token_id=None,
            attention_mask=torch.ones(len(PROMPTS), 16, dtype=torch.long),
        )
    assert out[:, 16:].tolist() == [[int(t) for t in plain.generate(prompt, TOKENS)] for prompt in PROMPTS]
