"""Several prompts served together: each gets the text it gets alone, and weights are sent once for all."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from comet_sim.errors import InputError
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.config import ModelConfig
from comet_sim.models.demo import DEMO_NAMES, heldout
from comet_sim.roles.plan import Plan
from comet_sim.scenario import prepare, scenario_from_dict
from comet_sim.simulation import Result, simulate

TOKENS = 2
SMALL = {"prompt_tokens": 5, "batch": 3, "output_tokens": TOKENS}
OTHER_WAYS = {
    "reveal": "servers",
    "final_norm": "all",
    "qkv": "sequence",
    "masking": {"weights": "reuse", "cache": "reuse"},
}


def _table(model: str = "opt-demo", workload: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"model": model, "seed": 1, "workload": workload or SMALL, **more}


def _run(*arguments: Any, folder: Path | None = None, **more: Any) -> Result:
    return simulate(scenario_from_dict(_table(*arguments, **more)), folder=folder)


def _between(result: Result) -> int:
    """Bytes server 0 sends to server 1 online."""
    return int(result.summary["phases"]["online"]["links"]["server0->server1"]["payload"])


@cache
def _alone(model: str) -> list[Result]:
    windows = (f"prose-{i}" for i in range(3))
    return [
        _run(model, {"prompt_tokens": 5, "prompt_window": window, "output_tokens": TOKENS})
        for window in windows
    ]


@pytest.mark.parametrize(
    ("model", "protocol"), [*((name, {}) for name in DEMO_NAMES), ("reglu-llama-demo", OTHER_WAYS)]
)
def test_each_sequence_says_what_it_says_alone(model: str, protocol: dict[str, Any]) -> None:
    together = _run(model, protocol=protocol)
    alone = _alone(model)
    assert together.token_ids == together.summary["token_ids"] == [each.token_ids for each in alone]
    assert together.texts == together.summary["texts"] == [each.text for each in alone]
    assert together.text is None and together.summary["text"] is None
    assert together.summary["prompts"] == [each.summary["prompt"] for each in alone]
    assert together.summary["truncation"]["wraps"] == 0
    shape = _run(model, protocol=protocol, execution="shape")
    assert shape.trace.digest == together.trace.digest
    assert shape.token_ids == [] and shape.texts is None


def _sent_once(config: ModelConfig) -> int:
    """Elements that a pass sends once whatever the batch: weight matrices, both tables, and norms' weights."""
    d, inner, kv = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    matrices = d * inner + 2 * d * kv + inner * d + (3 if config.gated else 2) * d * config.ffn
    return config.layers * (matrices + 2 * d) + 2 * config.vocab * d + d


@pytest.mark.parametrize("batch", [3])
@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo", "gpt2", "llama2-7b"])
def test_weights_are_sent_once_and_all_else_for_each_sequence(model: str, batch: int) -> None:
    one, several = (
        _run(model, {"prompt_tokens": 6, "batch": n, "output_tokens": TOKENS}, execution="shape")
        for n in (1, batch)
    )
    once = 8 * TOKENS * _sent_once(resolve_model(model).config)
    assert _between(several) - once == batch * (_between(one) - once)
    online = several.summary["phases"]["online"]
    assert online["rounds"] == one.summary["phases"]["online"]["rounds"]
    user = online["links"]["user->server1"]["payload"]
    assert user == 8 * batch * (6 + TOKENS - 1) * resolve_model(model).config.vocab


@pytest.mark.parametrize("reveal", ["user", "servers"])
def test_the_ledger_counts_the_logits_of_every_sequence(reveal: str) -> None:
    result = _run(execution="shape", protocol={"reveal": reveal})
    (line,) = [line for line in result.summary["reveals"] if line["what"] == "logits"]
    assert line["elements"] == 3 * TOKENS * resolve_model("opt-demo").config.vocab
    assert len(result.summary["where"]) > 3 and result.summary["batch"] == 3


@pytest.mark.parametrize("dealer", ["on-demand", "streamed"])
def test_dealer_modes_change_time_not_text(dealer: str) -> None:
    other = _run(protocol={"dealer": dealer})
    assert other.token_ids == [each.token_ids for each in _alone("opt-demo")]
    shape, offline = (_run(execution="shape", protocol={"dealer": mode}) for mode in (dealer, "offline"))
    assert shape.trace.digest == other.trace.digest
    assert _between(other) == _between(offline)


def test_prompts_are_texts_or_ids() -> None:
    scenario = scenario_from_dict(_table(workload={"prompts": ["In the beginning", [1, 2, 3, 4, 5]]}))
    assert scenario.workload.batch == 2
    first, second = prepare(scenario).prompts
    assert first.text == "In the beginning" and first.tokens == second.tokens == 5
    assert second.ids == (1, 2, 3, 4, 5)
    single = scenario_from_dict(_table(workload={"prompts": ["In the beginning"]}))
    assert prepare(single).prompts == (first,)


def test_a_length_takes_windows_in_a_row() -> None:
    workload = {"prompt_tokens": 4, "prompt_window": "code-7", "batch": 3}
    found = prepare(scenario_from_dict(_table(workload=workload))).prompts
    assert [each.ids for each in found] == [tuple(ids) for ids in heldout().code[7:10, :4].tolist()]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (
            {"prompts": ["In the beginning", "a"]},
            "workload.prompts: prompts served together have equally many tokens, but these have 5, 1",
        ),
        (
            {"prompts": [[1], [2]], "batch": 3},
            "workload.batch: read 3, but the number of prompts is 2; accepted: 2",
        ),
        ({"prompts": [[1], [2, 5000]]}, "workload.prompts[1][1]: read 5000; the model's token ids are 0 to"),
        ({"prompts": ["a", 4]}, "workload.prompts[1]: read 4; accepted: text, or a list of token ids"),
        (
            {"prompts": ["a", [True]]},
            "workload.prompts[1]: read [True]; accepted: text, or a list of token ids",
        ),
        ({"prompts": ["a", ""]}, "workload.prompts[1]: read ''; accepted: text, or a list of token ids"),
        ({"prompts": []}, "workload.prompts: read []; accepted: a list of 1 or more"),
        (
            {"prompt": "a", "batch": 2},
            "workload.batch: read 2, but there is one prompt; accepted: 1, or in place",
        ),
        ({"prompts": ["a"], "prompt_ids": [1]}, "workload: give exactly one of"),
        (
            {"prompt_tokens": 4, "batch": 2, "stop": "eos"},
            "workload.stop: read 'eos', but the texts of a batch of 2 end together; accepted: length",
        ),
        (
            {"prompt_tokens": 4, "batch": 2, "prompt_window": "code-95"},
            "workload.prompt_window: read 'code-95' with a batch of 2; accepted: code-0 to code-94",
        ),
        ({"prompt_tokens": 4, "batch": 97}, "workload.batch: read 97; there are 96 windows of prose"),
        ({"prompt_tokens": 4, "batch": 0}, "workload.batch: read 0; accepted: 1 or more"),
    ],
)
def test_what_cannot_be_served_together_is_refused(workload: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario_from_dict(_table(workload=workload))
    assert str(caught.value).startswith(f"scenario: {message}")
    assert "\n" not in str(caught.value)


def test_a_plan_of_several_sequences_has_no_early_end() -> None:
    with pytest.raises(ValueError, match="batch of 2 cannot stop"):
        Plan(4, 2, 100, stop_at_eos=True, eos_id=1, batch=2)
