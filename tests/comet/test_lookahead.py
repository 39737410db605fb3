"""Refills ahead of a layer: off the critical path where the link has idle time, and never in anybody's way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from comet_sim.comet.indexing import Part
from comet_sim.comet.settings import CometSettings
from comet_sim.models.decoder import Layout
from comet_sim.network import LinkConfig, Topology
from comet_sim.network.profiles import load_profile
from comet_sim.network.study import time_messages
from comet_sim.roles.dealer import Dealing
from comet_sim.simulation.stage import PARTIES
from comet_sim.trace.critical import critical_path
from comet_sim.trace.store import Trace

SERVERS = ("server0", "server1")
LINK = LinkConfig(rate=1_000_000_000, delay=1_000_000, classes=2)
"""A millisecond of delay: between the rounds of a feed-forward there is time to send something else."""


def _topology(link: LinkConfig = LINK) -> Topology:
    usual = load_profile("lan-5g").resolve(PARTIES)
    return Topology(PARTIES, {**usual.links, SERVERS: link, SERVERS[::-1]: link})


def _in_turns(part: Part, layer: int, start: int, tokens: int) -> np.ndarray:
    """Half of the heads are active at every other token, so a head that is not will be: easy to foresee."""
    if part == "ffn":
        return np.random.default_rng([layer, start]).random((tokens, 640)) < 0.1
    return np.add.outer(np.arange(start, start + tokens), np.arange(8)) % 2 == 0


def _shape(comet: Callable[..., Any], **how: Any) -> Any:
    how = {"prompt": range(300, 340), "output": 4, "exact": False, "masks": _in_turns} | how
    settings = CometSettings(source="recorded", **how.pop("switches"))
    return comet("opt-demo", settings, **{"topology": _topology()} | how)


def _time_of(trace: Trace, op: str) -> int:
    """Nanoseconds an op has on the critical path of the online phase."""
    return sum(share.total for share in critical_path(trace).by_op() if op in share.op.split("/"))


def test_refills_leave_the_critical_path_of_a_link_with_idle_time(comet: Callable[..., Any]) -> None:
    without = _shape(comet, switches={})
    ahead = _shape(comet, switches={"cache_lookahead": True})
    assert _time_of(without.trace, "refill") > 0
    assert _time_of(ahead.trace, "refill") == _time_of(ahead.trace, "lookahead") == 0
    steps = [np.diff(run.outcome.token_times) for run in (without, ahead)]
    assert (steps[1] < steps[0]).all()
    counts = ahead.outcome.sparsity.cache.counts
    # Every head that was foreseen was read: nothing but the first refill was missed, and nothing made in vain.
    assert counts.looked_ahead == counts.looked_ahead_used > 0
    assert counts.misses == 0
    assert without.outcome.sparsity.cache.counts.misses == counts.looked_ahead


def _messages(trace: Trace) -> list[dict[str, Any]]:
    rows = sorted(trace.messages.to_pylist(), key=lambda row: row["id"])
    return [row for row in rows if row["phase"] == "online" and {row["src"], row["dst"]} == set(SERVERS)]


@pytest.mark.parametrize("rate", [1_000_000_000, 20_000_000])
def test_nothing_urgent_waits_for_more_than_one_packet_of_it(comet: Callable[..., Any], rate: int) -> None:
    """All else, sent at the same times on a link without the refills, arrives as early but for a packet."""
    link = replace(LINK, rate=rate, delay=20_000)
    rows = _messages(_shape(comet, switches={"cache_lookahead": True}, topology=_topology(link)).trace)
    urgent = [row for row in rows if row["priority"] == 0]
    late = [row for row in rows if row["priority"] == 1]
    assert late
    assert {row["path"].split("/")[-1] for row in late} == {"lookahead"}
    assert "lookahead" not in {part for row in urgent for part in row["path"].split("/")}
    sent = [(row["created"], row["src"], row["dst"], row["payload"]) for row in urgent]
    alone = time_messages(sent, _topology(link))
    packet = link.time(link.mss + link.packet_overhead)
    waits = [row["delivered"] - each.delivered for row, each in zip(urgent, alone, strict=True)]
    assert min(waits) >= 0
    assert 0 < max(waits) <= packet


def test_without_classes_it_shares_the_link_and_is_in_the_way(comet: Callable[..., Any]) -> None:
    """What the classes are for: the same run on a slow link that knows none."""
    ends = []
    for classes in (1, 2):
        link = replace(LINK, rate=20_000_000, delay=20_000, classes=classes)
        run = _shape(comet, switches={"cache_lookahead": True}, topology=_topology(link))
        rows = [row for row in _messages(run.trace) if row["priority"] == 0]
        ends.append(sum(row["queued"] for row in rows))
    assert ends[0] > ends[1]


@pytest.mark.parametrize("policy", ["immediate", "merged", "fused"])
def test_text_is_the_same_and_shapes_trace_the_same(comet: Callable[..., Any], policy: Any) -> None:
    settings = CometSettings(source="oracle", policy=policy, prefetch=True, cache_lookahead=True)
    prompt: Sequence[int] = (5, 17, 300, 41, 99, 1000, 7)
    run = comet("opt-demo", settings, prompt=prompt, output=5, topology=_topology())
    assert run.outcome.token_ids == run.expected
    assert run.outcome.auditor.wraps == 0
    assert run.outcome.stock_left == 0
    shape = comet("opt-demo", settings, prompt=prompt, output=5, topology=_topology(), exact=False)
    assert shape.trace.digest == run.trace.digest
    counts = run.outcome.sparsity.cache.counts
    assert counts.prefetched_used > 0
    assert counts.looked_ahead > 0


@pytest.mark.parametrize("switch", [{"columns": 2}, {"columns": "per-call"}, {"layout": "reuse"}])
def test_orders_masks_and_a_streaming_dealer(comet: Callable[..., Any], switch: dict[str, Any]) -> None:
    layout = Layout(weights=switch.pop("layout", "per-use"))
    settings = CometSettings(source="oracle", prefetch=True, cache_lookahead=True, **switch)
    how = {"prompt": (5, 17, 300), "output": 4, "layout": layout, "dealing": Dealing("streamed")}
    run = comet("opt-demo", settings, **how)
    assert run.outcome.token_ids == run.expected
    assert comet("opt-demo", settings, exact=False, **how).trace.digest == run.trace.digest
