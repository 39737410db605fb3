"""Every suite under Comet: right text on active entries alone, and shapes that trace as values do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from comet_sim.baselines import SUITES
from comet_sim.comet.settings import CometSettings
from comet_sim.models.demo import heldout

SETTINGS = CometSettings(source="oracle")


@pytest.mark.parametrize("suite", [name for name in SUITES if name != "crypten-accurate"])
def test_a_suite_serves_comet(comet: Callable[..., Any], suite: str) -> None:
    """Its text is that of the plain model with the same things skipped (and the same functions replaced)."""
    prompt = tuple(map(int, heldout().prose[0, :6]))  # within the range of every suite's scores
    exact = comet("opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite)
    shape = comet("opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite, exact=False)
    assert exact.outcome.token_ids == exact.expected
    assert shape.trace.digest == exact.trace.digest
    dense = comet(
        "opt-demo", SETTINGS, prompt=prompt, output=2, suite=suite, exact=False, comet=None, masks=None
    )
    for op in ("ffn/relu", "attention/softmax"):
        sent = [_bytes(run, op) for run in (shape, dense)]
        assert 0 < sent[0] < sent[1], f"{op}: entries that were skipped were worked on"


def _bytes(run: Any, op: str) -> int:
    rows = run.trace.messages.select(["path", "payload", "phase"]).to_pylist()
    return sum(row["payload"] for row in rows if f"/{op}" in str(row["path"]) and row["phase"] == "online")
