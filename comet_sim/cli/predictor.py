"""`comet-sim train-predictor` and `accuracy`: a model's predictor made, and what skipping by it costs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.cli.pipes import reader_may_leave
from comet_sim.errors import InputError

if TYPE_CHECKING:
    from comet_sim.comet.measure import Way
    from comet_sim.comet.plain import Part
    from comet_sim.comet.predictor_file import TrainedPredictor

__all__ = ["show_accuracy", "train"]

_JSON_SCHEMA = 1
_TOLD_EVERY_S = 5.0


def train(
    model: str,
    rank: int,
    rank_heads: int,
    texts: list[Path],
    windows: int,
    out: Path | None,
    seed: int,
    *,
    lookahead: bool,
) -> None:
    """Train a model's predictor and write it beside the checkpoint, or to `out`."""
    from comet_sim.comet.predictor_file import (
        LOOKAHEAD_FILE,
        PREDICTOR_FILE,
        load_predictor,
        save_predictor,
    )
    from comet_sim.comet.texts import training_texts
    from comet_sim.comet.training import Ranks, train_predictor
    from comet_sim.models.catalogue import resolve_model

    resolved = resolve_model(model)
    checkpoint = resolved.load()
    folder = resolved.folder
    assert folder is not None  # load() refuses models without one
    file = out if out is not None else folder / (LOOKAHEAD_FILE if lookahead else PREDICTOR_FILE)
    _check_writable(file)
    found = training_texts(checkpoint, folder, texts, windows, seed, _tell)
    _tell(
        f"training on {found.train.size:,} tokens in {len(found.train):,} windows, "
        f"{found.validation.size:,} tokens to choose thresholds on"
    )
    ranks = Ranks(rank, rank_heads)
    trained = train_predictor(checkpoint, found, ranks=ranks, seed=seed, lookahead=lookahead, tell=_tell)
    save_predictor(file, trained)
    kept = load_predictor(file, checkpoint)
    for part, name in (("ffn", "neurons"), ("heads", "heads")):
        if f"recall_{part}" in kept.metadata:
            facts = {key: kept.metadata[f"{key}_{part}"] for key in ("recall", "precision", "density")}
            _tell(
                f"{name}: recall {facts['recall']}, precision {facts['precision']}, {facts['density']} of all "
                f"predicted active, at delta {kept.metadata[f'delta_{part}']} (validation)"
            )
    _tell(f"wrote {file}")


def show_accuracy(
    model: str,
    windows: int,
    file: Path | None,
    texts: list[Path],
    deltas: tuple[float | None, float | None],
    *,
    lookahead: bool,
    as_json: bool,
) -> None:
    """Measure every way of running on held-out windows and print a table or JSON."""
    from comet_sim.comet.measure import measure_ways
    from comet_sim.comet.predictor_file import LOOKAHEAD_FILE, PARTS, PREDICTOR_FILE, load_predictor
    from comet_sim.comet.texts import held_out_windows
    from comet_sim.models.catalogue import resolve_model

    resolved = resolve_model(model)
    checkpoint = resolved.load()
    folder = resolved.folder
    assert folder is not None  # load() refuses models without one
    usual = folder / (LOOKAHEAD_FILE if lookahead else PREDICTOR_FILE)
    predictor = load_predictor(file if file is not None else usual, checkpoint)
    if deltas[1] is not None and not predictor.heads:
        raise InputError(f"--delta-heads: the predictor of {resolved.name} has no heads")
    held_out = held_out_windows(checkpoint, folder, texts, windows)
    given: dict[Part, float] = {
        part: delta for part, delta in zip(PARTS, deltas, strict=True) if delta is not None
    }
    last = time.monotonic()

    def progress(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _TOLD_EVERY_S:
            last = time.monotonic()
            _tell(f"window {done} of {total}")

    ways = measure_ways(checkpoint, predictor, held_out, deltas=given, progress=progress)
    used: dict[Part, float] = {
        part: given.get(part, predictor.delta(part)) for part in PARTS if predictor.of(part)
    }
    if as_json:
        rows = [_row(way, ways[0]) for way in ways]
        print_json(
            {
                "schema": _JSON_SCHEMA,
                "model": resolved.name,
                "tokens": ways[0].tokens,
                "delta": dict(used),
                "predictor": dict(sorted(predictor.metadata.items())),
                "ways": rows,
            }
        )
        return
    _print(resolved.name, ways, used, predictor)


def _row(way: Way, reference: Way) -> dict[str, Any]:
    row: dict[str, Any] = {
        "way": way.name,
        "perplexity": {domain: way.perplexity(domain) for domain in way.tokens},
        "change": {
            domain: way.perplexity(domain) / reference.perplexity(domain) - 1 for domain in way.tokens
        },
        "top1_agreement": way.agreement,
    }
    for part in way.skips:
        counts = way.counts(part)
        row[part] = {"density": counts.density}
        if way.predicted:
            row[part] |= {"recall": counts.recall, "precision": counts.precision}
    return row


def _print(name: str, ways: list[Way], deltas: dict[Part, float], predictor: TrainedPredictor) -> None:
    reference = ways[0]
    domains = list(reference.tokens)
    tokens = " and ".join(f"{reference.tokens[domain]:,} tokens of {domain}" for domain in domains)
    columns = [*(f"perplexity {domain}" for domain in domains), "same top 1"]
    columns += ["neurons active", "recall of neurons", "precision of neurons"]
    if any("heads" in way.skips for way in ways):
        columns += ["heads active", "recall of heads", "precision of heads"]
    shown = table(f"{name} on {tokens}, held out", "run with", *columns, right=tuple(columns))
    for way in ways:
        cells = [_perplexity(way, reference, domain) for domain in domains]
        cells.append(f"{way.agreement:.1%}")
        for part in ("ffn", "heads"):
            cells += _mask_cells(way, part)
        shown.add_row(way.name, *cells[: len(columns)])
    out = console()
    show(out, shown)
    thresholds = ", ".join(
        f"{'neurons' if part == 'ffn' else part} {delta:g} (rank {predictor.of(part)[0].rank})"
        for part, delta in deltas.items()
    )
    out.print(plain(f"active above delta: {thresholds}; in brackets the change against plain"))


def _perplexity(way: Way, reference: Way, domain: str) -> str:
    own, plain_one = way.perplexity(domain), reference.perplexity(domain)
    return f"{own:.2f}" if way is reference else f"{own:.2f} ({own / plain_one - 1:+.2%})"


def _mask_cells(way: Way, part: Part) -> list[str]:
    if part not in way.skips:
        return ["", "", ""]
    counts = way.counts(part)
    density = f"{counts.density:.1%}"
    return (
        [density, f"{counts.recall:.3f}", f"{counts.precision:.3f}"] if way.predicted else [density, "", ""]
    )


def _check_writable(file: Path) -> None:
    """Refuse a place that cannot be written before minutes are spent."""
    if file.is_dir():
        raise InputError(f"{file}: is a folder, expected a file")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise InputError(
            f"{file}: cannot be written: no such folder, or not ours to write; choose with --out"
        )


def _tell(line: str) -> None:
    with reader_may_leave(sys.stderr):
        print(line, file=sys.stderr, flush=True)
