"""Compare privately generated tokens with the plain model's over many held-out prompts.

Usage: python tools/agreement.py [--model opt-demo] [--prompts 100] [--tokens 16] [--suite crypten] [--json]

Prompts are the first 16 tokens of the first held-out windows, half prose, half code. A pair of texts that
differs is explained by the plain model's margin at the first differing token (the two best logits) and by the
truncation wraps counted in the run.
"""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from comet_sim.models.demo import DEMO_NAMES, heldout, load_demo
from comet_sim.models.plain import PlainDecoder
from comet_sim.scenario import Scenario, SystemSpec, WorkloadSpec
from comet_sim.simulation import simulate


def compare(prompt: list[int], tokens: int, suite: str, plain: PlainDecoder, seed: int) -> dict[str, object]:
    """Return how one private generation compares with the plain one."""
    scenario = Scenario(
        model=plain.config.name,
        seed=seed,
        workload=WorkloadSpec(prompt_ids=tuple(prompt), output_tokens=tokens),
        systems=(SystemSpec(name="dense", suite=suite),),
    )
    result = simulate(scenario)
    expected = plain.generate(prompt, tokens)
    same = [mine == theirs for mine, theirs in zip(result.token_ids, expected, strict=True)]
    row: dict[str, object] = {"agree": sum(same), "wraps": result.summary["truncation"]["wraps"]}
    if not all(same):
        first = same.index(False)
        logits, _ = plain.forward(np.array([*prompt, *expected[:first]]))
        best = np.sort(logits[-1])[::-1]
        row |= {"first_difference": first, "margin": float(best[0] - best[1])}
    return row


def main() -> None:
    """Run the comparison and print a table or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=DEMO_NAMES, default=DEMO_NAMES[0])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--suite", default="crypten")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    checkpoint = load_demo(args.model)
    plain = PlainDecoder(checkpoint.config, checkpoint.weights)
    prompts = heldout().prompts(16, args.prompts // 2).tolist()
    rows = []
    for number, prompt in enumerate(prompts):
        rows.append(compare(prompt, args.tokens, args.suite, plain, number))
        print(f"\r{number + 1}/{len(prompts)} prompts", end="", file=sys.stderr)
    print(file=sys.stderr)
    agree = sum(int(str(row["agree"])) for row in rows)
    total = len(rows) * args.tokens
    if args.json:
        print(
            json.dumps(
                {"model": args.model, "suite": args.suite, "agree": agree, "tokens": total, "prompts": rows},
                indent=1,
            )
        )
        return
    print(
        f"{args.model}, {args.suite}: {agree} of {total} tokens agree ({agree / total:.2%}), {len(rows)} prompts"
    )
    for number, row in enumerate(rows):
        if "margin" in row:
            print(
                f"  prompt {number}: differs from token {row['first_difference']}, margin {row['margin']:.4f}, "
                f"{row['wraps']} wraps"
            )


if __name__ == "__main__":
    main()
