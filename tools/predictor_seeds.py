"""Train predictors with several seeds and measure each on all held-out windows.

Usage: python tools/predictor_seeds.py [MODEL ...] [--seeds 3] [--windows 96] [--json FILE]

Nothing is kept but the table on stdout (and FILE); a demo model takes about two minutes a seed on an idle core.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from comet_sim.comet.measure import measure_ways
from comet_sim.comet.texts import held_out_windows, training_texts
from comet_sim.comet.training import train_predictor
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.demo import DEMO_NAMES


def measure(model: str, seed: int, windows: int) -> list[dict[str, Any]]:
    """Train with one seed; return a row for each way of running that uses the predictor."""
    resolved = resolve_model(model)
    checkpoint = resolved.load()
    assert resolved.folder is not None

    def tell(line: str) -> None:
        print(f"{model}, seed {seed}: {line}", file=sys.stderr, flush=True)

    texts = training_texts(checkpoint, resolved.folder, (), 1600, seed, tell)
    predictor = train_predictor(checkpoint, texts, seed=seed, tell=tell)
    held_out = held_out_windows(checkpoint, resolved.folder, count=windows)
    plain, *ways = measure_ways(checkpoint, predictor, held_out)
    rows = []
    for way in ways:
        if not way.predicted:
            continue
        row: dict[str, Any] = {"model": model, "seed": seed, "way": way.name, "agreement": way.agreement}
        for domain in plain.tokens:
            row[f"change_{domain}"] = way.perplexity(domain) / plain.perplexity(domain) - 1
        for part in way.skips:
            counts = way.counts(part)
            row |= {f"recall_{part}": counts.recall, f"precision_{part}": counts.precision}
            row |= {f"density_{part}": counts.density, f"delta_{part}": predictor.delta(part)}
        rows.append(row)
    return rows


def main() -> None:
    """Run all seeds and print the table in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=96)
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    rows = [
        row
        for model in arguments.models or DEMO_NAMES
        for seed in range(arguments.seeds)
        for row in measure(model, seed, arguments.windows)
    ]
    print(
        "| model | seed | run with | prose | code | neurons: recall, precision | heads: recall, precision |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        parts = [
            f"{row[f'recall_{part}']:.3f}, {row[f'precision_{part}']:.3f}" if f"recall_{part}" in row else "-"
            for part in ("ffn", "heads")
        ]
        changes = [
            f"{row[f'change_{domain}']:+.2%}" if f"change_{domain}" in row else "-"
            for domain in ("prose", "code")
        ]
        cells = (f"`{row['model']}`", str(row["seed"]), row["way"], *changes, *parts)
        print(f"| {' | '.join(cells)} |")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
