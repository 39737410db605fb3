"""Cost of noise on revealed counts, in time and bytes of a decode token, beside the dense system.

Usage: python tools/privacy_costs.py [--model llama2-7b] [--network lan-5g] [--device a100] [--suite crypten]
                                     [--tokens 4] [--delta 1e-6] [--neurons 0.15] [--heads 0.51]

Over shapes, with masks drawn at random: each neuron is active with probability `--neurons`, each head with `--heads`,
independent of everything. The prompt is one token; figures are means over `--tokens` decode tokens, without set-up,
offline phase and prompt. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from comet_sim.baselines import SUITES
from comet_sim.comet.indexing import Part
from comet_sim.comet.noise import mechanism
from comet_sim.comet.settings import CometSettings, Noise, PrivacySettings
from comet_sim.events import Names
from comet_sim.kernel import generator
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.devices import DEVICES
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.simulation.stage import PARTIES, Inference, play
from comet_sim.trace.query import by_op
from comet_sim.trace.recorder import Recorder
from comet_sim.trace.store import Trace

EPSILONS = (1.0, 0.1, 0.01)


def measure(run: Inference) -> tuple[float, float, float, dict[str, float]]:
    """Return seconds and bytes (of one server) a decode token, the share of bytes noise takes, and densities."""
    names = Names()
    recorder = Recorder(names, None)
    outcome = play(run, names, recorder)
    steps = [end - start for start, end in pairwise(outcome.token_times)]
    sent = noise = 0
    for row in by_op(Trace.of(recorder), 9, between_servers=True):
        token = row.op.split("/")[0]
        if row.phase == "online" and token.startswith("token") and token != "token0":
            sent += row.payload
            noise += row.payload if "/indexing/privacy" in row.op else 0
    densities = {}
    if outcome.sparsity is not None:
        for part in ("ffn", "heads"):
            masks = [mask for call, mask in outcome.sparsity.masks if call.part == part and call.start]
            densities[part] = float(np.mean([mask.mean() for mask in masks]))
    return sum(steps) / len(steps) / 1e9, sent / 2 / len(steps), noise / sent, densities


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama2-7b")
    parser.add_argument("--network", default="lan-5g")
    parser.add_argument("--device", default="a100", choices=sorted(DEVICES))
    parser.add_argument("--suite", default="crypten", choices=sorted(SUITES))
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--neurons", type=float, default=0.15)
    parser.add_argument("--heads", type=float, default=0.51)
    given = parser.parse_args()
    config = resolve_model(given.model).config

    def masks(part: Part, layer: int, start: int, tokens: int) -> Any:
        width, density = (config.ffn, given.neurons) if part == "ffn" else (config.heads, given.heads)
        return generator(0, "masks", part, layer, start).random((tokens, width)) < density

    settings = CometSettings(
        source="recorded", rank_ffn=max(1, config.hidden // 8), rank_heads=max(1, config.hidden // 16)
    )
    dense = Inference(
        config=config,
        plan=Plan(1, 1 + given.tokens, config.vocab),
        suite=SUITES[given.suite],
        topology=load_profile(given.network).resolve(PARTIES),
        device=DEVICES[given.device],
        seed=0,
    )
    comet = replace(dense, comet=settings, masks=masks)
    rows = [("dense", None, "", measure(dense)), ("Comet, exact counts", None, "", measure(comet))]
    for epsilon in EPSILONS:
        noise = Noise(epsilon, given.delta)
        for which, privacy in (
            ("neurons", PrivacySettings(ffn=noise)),
            ("neurons and heads", PrivacySettings(ffn=noise, heads=noise)),
        ):
            run = replace(comet, comet=replace(settings, privacy=privacy))
            rows.append((f"noise on {which}", noise, f"{epsilon:g}", measure(run)))
    head = [
        "system",
        "epsilon",
        "shift",
        "active neurons",
        "active heads",
        "s a token",
        "MB a server",
        "noise's own",
    ]
    head += ["times faster", "times fewer bytes"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    base = rows[0][3]
    for name, noise, epsilon, (seconds, sent, own, densities) in rows:
        cells = [name, epsilon, str(mechanism(noise).shift) if noise else ""]
        cells += [f"{densities[part]:.1%}" if densities else "100%" for part in ("ffn", "heads")]
        cells += [f"{seconds:.3f}", f"{sent / 1e6:,.0f}", f"{own:.2%}" if noise else ""]
        cells += [f"{base[0] / seconds:.2f}x", f"{base[1] / sent:.2f}x"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
