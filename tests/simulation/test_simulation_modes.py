"""Dealer modes and reused masks on the demo model: same text, the bytes the formulas predict, named stalls."""

import pytest

from comet_sim.models.catalogue import resolve_model
from comet_sim.models.config import ModelConfig
from comet_sim.scenario import MaskingSpec, NetworkChoice, ProtocolSpec, Scenario, WorkloadSpec
from comet_sim.simulation import simulate
from comet_sim.trace import critical_path

PROMPT, TOKENS = 16, 4


def run(
    execution: str = "exact",
    network: NetworkChoice | None = None,
    model: str = "opt-demo",
    **protocol: object,
):
    return simulate(
        Scenario(
            model=model,
            execution=execution,
            seed=1,
            workload=WorkloadSpec(prompt_tokens=PROMPT, output_tokens=TOKENS),
            network=network or NetworkChoice(),
            protocol=ProtocolSpec(**protocol),
        )
    )


def between_servers(result) -> int:
    """Bytes server 0 sends to server 1 online."""
    return result.summary["phases"]["online"]["links"]["server0->server1"]["payload"]


@pytest.fixture(scope="module")
def plain_run():
    return run()


@pytest.mark.parametrize("dealer", ["on-demand", "streamed"])
def test_modes_change_time_not_text(plain_run, dealer):
    """Randomness is named by position: whenever it is dealt, shares and openings are the same."""
    exact, shape = run(dealer=dealer), run("shape", dealer=dealer)
    assert exact.token_ids == plain_run.token_ids
    assert between_servers(exact) == between_servers(plain_run)
    assert exact.summary["phases"]["online"]["rounds"] == plain_run.summary["phases"]["online"]["rounds"]
    assert exact.summary["phases"]["offline"]["time_ns"] == 0
    assert exact.trace.digest == shape.trace.digest
    assert exact.summary["parts"]["gap"] == 0


def test_a_bounded_stock_is_kept(plain_run):
    """Memory of stored corrections: everything offline, at most the bound when streamed (pieces are smaller)."""
    streamed = run("shape", dealer="streamed", dealer_stock="1MiB")
    assert streamed.summary["dealer"]["stock_peak_elements"] * 8 <= 1 << 20
    everything = plain_run.summary["dealer"]["correction_elements"]
    assert plain_run.summary["dealer"]["stock_peak_elements"] == everything


def test_a_slow_dealer_shows_as_named_stalls():
    """On a slow dealer's link most of the time lies in replies, and each names the op that waits for it."""
    slow = run("shape", NetworkChoice(dealer={"rate": "20Mbit", "rtt": "10ms"}), dealer="on-demand")
    steps = critical_path(slow.trace, "online").steps.to_pylist()
    waits = {step["path"] for step in steps if step["src"] == "dealer" and step["kind"] == "message"}
    assert any(path.endswith("ffn/relu/ltz") for path in waits)
    assert slow.summary["dealer_wait_ns"] > 0.5 * slow.summary["phases"]["online"]["time_ns"]
    assert run("shape").summary["dealer_wait_ns"] == 0


def predicted_savings(config: ModelConfig) -> tuple[int, int]:
    """Bytes a server saves: weights sent once instead of at each pass, cache rows once instead of every step."""
    d, inner, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    attention = d * inner + 2 * d * kv + inner * d
    matrices = config.layers * (attention + (3 if config.gated else 2) * d * config.ffn)
    table = config.vocab * d
    weights = (TOKENS - 1) * (matrices + 2 * table)
    if config.tied:
        weights += (
            table  # embedding and LM head are one tensor, which per-use masking sends twice even at first
        )
    lengths = [PROMPT + step for step in range(TOKENS)]
    cache = config.layers * 2 * kv * (sum(lengths) - lengths[-1])
    return 8 * weights, 8 * cache


@pytest.mark.parametrize(
    ("model", "execution"),
    [("opt-demo", "exact"), ("opt-demo", "shape"), ("gpt2", "shape"), ("llama2-7b", "shape")],
)
def test_reused_masks_save_what_the_formula_says(model, execution):
    """And the dealer deals as many corrections: what is saved is the servers' traffic alone."""
    weights, cache = predicted_savings(resolve_model(model).config)
    per_use = run(execution, model=model)
    for masking, saved in (
        (MaskingSpec(weights="reuse"), weights),
        (MaskingSpec(cache="reuse"), cache),
        (MaskingSpec(weights="reuse", cache="reuse"), weights + cache),
    ):
        result = run(execution, model=model, masking=masking)
        assert between_servers(result) == between_servers(per_use) - saved
        assert (
            result.summary["dealer"]["correction_elements"]
            == per_use.summary["dealer"]["correction_elements"]
        )
        if execution == "exact":
            assert result.token_ids == per_use.token_ids
            assert result.trace.digest == run("shape", masking=masking).trace.digest
