"""Measure what merging and prefetching save on KV-cache refills of a demo model, prompt by prompt.

Usage: python tools/comet_cache.py [--windows 2] [--write docs/comet-cache.md]

Prints a table in Markdown; --write puts it into a page between its markers. About five minutes.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines import SUITES
from comet_sim.comet.plain import SkippingDecoder, by_part, true_masks
from comet_sim.comet.settings import CometSettings, Policy
from comet_sim.events import Names
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.checkpoint import Checkpoint
from comet_sim.models.demo import heldout
from comet_sim.models.devices import DEVICES
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.simulation.stage import PARTIES, Inference, play
from comet_sim.trace.query import by_op
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace

MODEL = "opt-demo"
PROMPTS = (8, 32, 96)
OUTPUTS = (1, 2, 4, 8, 16)
POLICIES: tuple[Policy, ...] = ("immediate", "merged", "fused")
INDEPENDENT = 0.51
"""Share of heads that are active in masks drawn at random: the paper's 49% are inactive."""
SETTINGS = CometSettings(source="recorded", ffn=False, columns="none", rows="none")
"""Heads alone are skipped: neurons and secret orders change nothing of what is measured here."""

Masks = NDArray[np.bool_]
"""Active heads (layers, tokens, heads) of prompt and output."""


@dataclass
class Cost:
    """What one server sends for Q, K and V in the layers' own products and in refills, bytes; what the cache did."""

    own: int = 0
    refill: int = 0
    misses: int = 0
    prefetched: int = 0
    used: int = 0
    kept: int = 0


@dataclass(frozen=True)
class Workload:
    """A prompt's length, and the heads that are active for it and for what follows."""

    prompt: int
    masks: Masks

    @property
    def density(self) -> float:
        """Share of active heads."""
        return float(self.masks.mean())

    def inactive_run(self, outputs: int) -> float:
        """Return the mean number of tokens a head sleeps, up to the last token read."""
        masks = self.masks[:, : self.prompt + outputs - 1]
        starts = masks[:, :-1] & ~masks[:, 1:]
        return float((~masks).sum() / max(1, starts.sum() + (~masks[:, 0]).sum()))


def head_masks(checkpoint: Checkpoint, prompt: list[int], outputs: int) -> Masks:
    """Return the heads that the plain model itself would keep, for a prompt and what it generates."""
    seen: dict[int, list[Any]] = {}
    plain = SkippingDecoder(
        checkpoint.config,
        checkpoint.weights,
        by_part(heads=true_masks),
        head_thresholds=checkpoint.metadata.head_thresholds,
        observe=lambda ask, mask: (
            seen.setdefault(ask.layer, []).append(mask) if ask.part == "heads" else None
        ),
    )
    plain.generate(prompt, outputs)
    return np.stack([np.concatenate(seen[layer]) for layer in range(checkpoint.config.layers)])


def cost(base: Inference, workload: Workload, outputs: int, policy: Policy, prefetch: bool) -> Cost:
    """Run a workload over shapes."""
    names = Names()
    recorder = Recorder(names, None)
    masks = workload.masks
    run = replace(
        base,
        plan=Plan(workload.prompt, outputs, base.config.vocab),
        comet=replace(SETTINGS, policy=policy, prefetch=prefetch),
        masks=lambda part, layer, start, tokens: masks[layer, start : start + tokens],
    )
    outcome = play(run, names, recorder)
    sent = dict.fromkeys(("qkv", "refill"), 0)
    for total in by_op(Trace.of(recorder), between_servers=True):
        last = total.op.split("/")[-1]
        if last in sent:
            sent[last] += total.payload // 2
    assert outcome.sparsity is not None
    assert outcome.sparsity.cache is not None
    cache = outcome.sparsity.cache
    counts = cache.counts
    return Cost(
        sent["qkv"],
        sent["refill"],
        counts.misses,
        counts.prefetched,
        counts.prefetched_used,
        cache.kept_bytes,
    )


def measure(base: Inference, workloads: list[Workload], outputs: int) -> dict[tuple[Policy, bool], Cost]:
    """Return the costs of all workloads together, by policy and whether it prefetches.

    `refill` is all that is sent beyond what a step's own entries need, wherever it is sent.
    """
    found = {(policy, prefetch): Cost() for policy in POLICIES for prefetch in (False, True)}
    for workload in workloads:
        costs = {way: cost(base, workload, outputs, *way) for way in found}
        # Refills that are merged are apart, so the rest is what the steps themselves need.
        needed = costs["merged", False].own
        for way, each in costs.items():
            total = found[way]
            total.own += needed
            total.refill += each.refill + each.own - needed
            total.misses += each.misses
            total.prefetched += each.prefetched
            total.used += each.used
            total.kept = max(total.kept, each.kept)
    return found


def _times(more: int, less: int) -> str:
    if not more:
        return "none missed"
    return f"{more / less:.2f}" if less else "all saved"


def row(base: Inference, name: str, workloads: list[Workload], outputs: int) -> str:
    """Return a line of the table."""
    costs = measure(base, workloads, outputs)
    immediate, merged, fused = (costs[policy, False] for policy in POLICIES)
    early = costs["merged", True]
    run = sum(each.inactive_run(outputs) for each in workloads) / len(workloads)
    count = len(workloads)
    cells = [
        name,
        str(outputs),
        f"{run:.1f}",
        f"{immediate.misses / count:.0f}",
        f"{immediate.refill / count / 1e3:,.0f}",
        f"{merged.refill / count / 1e3:,.0f}",
        f"{early.refill / count / 1e3:,.0f}",
        f"{fused.refill / count / 1e3:,.0f}",
        f"{costs['fused', True].refill / count / 1e3:,.0f}",
        _times(immediate.refill, merged.refill),
        _times(merged.refill, early.refill),
        f"{early.used} of {early.prefetched}",
        f"{early.kept / 1e3:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


COLUMNS = (
    "prompt",
    "outputs",
    "inactive run",
    "misses",
    "immediate kB",
    "merged kB",
    "merged, prefetch kB",
    "fused kB",
    "fused, prefetch kB",
    "merging saves x",
    "prefetching saves x",
    "prefetched entries read",
    "kept inputs kB",
)


def table(windows: int) -> str:
    """Return the whole table."""
    model = resolve_model(MODEL)
    checkpoint = model.load()
    config = checkpoint.config
    base = Inference(
        config=config,
        plan=Plan(1, 1, config.vocab),
        suite=SUITES["crypten-accurate"],
        topology=load_profile("lan-5g").resolve(PARTIES),
        device=DEVICES["cpu"],
        seed=1,
        exponents=dict(checkpoint.metadata.norm_scales),
    )
    held = heldout()
    texts = [kind[i].tolist() for kind in (held.prose, held.code) for i in range(windows)]
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    for prompt in PROMPTS:
        loads = [Workload(prompt, head_masks(checkpoint, text[:prompt], OUTPUTS[-1])) for text in texts]
        lines += [row(base, str(prompt), loads, outputs) for outputs in OUTPUTS]
    draws = np.random.default_rng(0)
    shape = (config.layers, 32 + OUTPUTS[-1], config.heads)
    loads = [Workload(32, draws.random(shape) < INDEPENDENT) for _ in texts]
    lines += [row(base, "32, independent", loads, outputs) for outputs in (4, 16)]
    return "\n".join(lines)


def main() -> None:
    """Print the table, or put it into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--windows", type=int, default=2, help="held-out windows of prose, and of code")
    parser.add_argument("--write", type=Path, help="page to put the table into")
    options = parser.parse_args()
    found = table(options.windows)
    if options.write is None:
        print(found)
        return
    page = options.write.read_text(encoding="utf-8")
    begin, end = "<!-- refills -->\n", "<!-- end of refills -->"
    before, marked, rest = page.partition(begin)
    if not marked or end not in rest:
        raise SystemExit(f"{options.write} has no markers {begin.strip()} and {end}")
    after = rest.partition(end)[2]
    options.write.write_text(f"{before}{begin}\n{found}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
