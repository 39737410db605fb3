"""Neurons predicted from the layer's input: the same text sooner, by the same messages, beside the attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.indexing import Call, why_opened
from comet_sim.comet.plain import Ask, SkippingDecoder, all_active
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.models.demo import load_demo
from comet_sim.roles.dealer import Dealing
from comet_sim.trace import Filter, Trace
from comet_sim.trace.critical import critical_path
from comet_sim.trace.query import phase_rounds

ORACLE: dict[str, Any] = {"source": "oracle"}


def critical(trace: Trace, part: str) -> int:
    """Nanoseconds a part has on the critical path of the online phase."""
    return sum(share.total for share in critical_path(trace).by_op() if part in share.op.split("/"))


def sent(trace: Trace) -> int:
    return sum(
        trace.select(Filter(phase="online", link=("server0", "server1"))).messages["payload"].to_pylist()
    )


@pytest.mark.parametrize("model", ["opt-demo", "reglu-llama-demo"])
def test_the_text_is_the_same_and_comes_sooner(comet: Callable[..., Any], model: str) -> None:
    usual = comet(model, CometSettings(**ORACLE), output=2)
    ahead = comet(model, CometSettings(**ORACLE, predictor_lookahead=True), output=2)
    assert ahead.outcome.token_ids == usual.outcome.token_ids == usual.expected
    assert sent(ahead.trace) == sent(usual.trace), "what is sent is the same, only when differs"
    # 9 rounds of prediction and 1 of opening in every layer, and in the prompt's pass 2 of a shuffle besides.
    saved = phase_rounds(usual.trace)["online"] - phase_rounds(ahead.trace)["online"]
    assert saved == 2 * 4 * 10
    assert critical(usual.trace, "threshold") > critical(ahead.trace, "threshold")
    assert ahead.outcome.token_times[-1] < usual.outcome.token_times[-1]


SWITCHES = [
    {"columns": "per-call"},
    {"columns": 1, "rows": "none", "policy": "fused", "cache_lookahead": True},
    {"heads": False, "linear": "dense"},
    {"privacy": PrivacySettings(ffn=Noise(1.0, 1e-3), heads=Noise(1.0, 1e-3)), "prefetch": True},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda each: ",".join(each))
def test_shapes_leave_the_same_trace(comet: Callable[..., Any], switches: dict[str, Any]) -> None:
    settings = CometSettings(**ORACLE, **switches, predictor_lookahead=True)
    runs = [
        comet("opt-demo", settings, prompt=(5, 17, 300), output=2, exact=exact) for exact in (True, False)
    ]
    assert runs[0].outcome.token_ids == runs[0].expected or "privacy" in switches
    assert runs[0].trace.digest == runs[1].trace.digest


@pytest.mark.parametrize("mode", ["on-demand", "streamed"])
def test_batches_and_other_dealers(comet: Callable[..., Any], mode: Any) -> None:
    dealing = Dealing(mode, stock=4_000_000) if mode == "streamed" else Dealing(mode)
    settings = CometSettings(**ORACLE, predictor_lookahead=True)
    run = comet("opt-demo", settings, prompts=((5, 17, 300), (41, 99, 7)), output=2, dealing=dealing)
    assert run.outcome.token_ids == run.expected


def test_the_ledger_says_what_was_seen() -> None:
    call = Call("ffn", 0, 0, 1, 1, None, 1)
    assert why_opened(CometSettings(predictor_lookahead=True), call).endswith(
        "predicted from the layer's input"
    )
    assert "layer's input" not in why_opened(CometSettings(), call)


def test_the_plain_model_shows_the_layers_input() -> None:
    """A neuron's early input is what the attention of the same layer and pass has seen."""
    loaded = load_demo()
    asks: list[Ask] = []
    thresholds = loaded.metadata.head_thresholds
    plain = SkippingDecoder(
        loaded.config,
        loaded.weights,
        all_active,
        head_thresholds=thresholds,
        observe=lambda ask, _: asks.append(ask),
    )
    plain.forward([5, 17, 300])
    for heads, neurons in zip(asks[::2], asks[1::2], strict=True):
        assert (heads.part, neurons.part, heads.layer) == ("heads", "ffn", neurons.layer)
        np.testing.assert_array_equal(neurons.early, heads.inputs)
        assert not np.allclose(neurons.early, neurons.inputs)
