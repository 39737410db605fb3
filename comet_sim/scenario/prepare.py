"""Checks a scenario against its model, and turns its prompt into tokens."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from comet_sim.errors import InputError
from comet_sim.models.catalogue import ResolvedModel, resolve_model
from comet_sim.models.demo import heldout
from comet_sim.models.tokenizer import TextTokenizer
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.network.profiles import NetworkSpec
from comet_sim.roles.preflight import largest_piece
from comet_sim.scenario.program import layout_of, plan_of, stock_of, suite_of
from comet_sim.scenario.schema import Scenario, SettingError

__all__ = ["Prepared", "Prompt", "prepare"]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the user asks: `ids` are None in shape runs without them, `text` where no tokenizer is at hand."""

    tokens: int
    ids: tuple[int, ...] | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A scenario that can be run: its model, prompt and network, with all names resolved."""

    model: ResolvedModel
    prompt: Prompt
    network: NetworkSpec
    tokenizer: TextTokenizer | None


def prepare(scenario: Scenario) -> Prepared:
    """Resolve the scenario's model, prompt and network; loads no weights.

    Raises `SettingError`, naming the key, for whatever this model cannot do.
    """
    try:
        model = resolve_model(scenario.model)
    except InputError as error:
        raise SettingError(("model",), str(error)) from None
    if scenario.execution == "exact" and model.folder is None:
        raise SettingError(
            ("model",),
            f"only the shapes of {scenario.model!r} are known, no weights; accepted: "
            'execution = "shape", or a folder with a transformers checkpoint',
        )
    tokenizer = _tokenizer(model)
    prompt = _prompt(scenario, model, tokenizer)
    _check_length(scenario, model, prompt)
    if scenario.workload.stop == "eos" and model.config.eos_id is None:
        raise SettingError(("workload", "stop"), "the model has no end-of-sequence token; accepted: length")
    if scenario.protocol.dealer == "streamed":
        _check_stock(scenario, model, prompt)
    return Prepared(model, prompt, scenario.network.spec(), tokenizer)


def _tokenizer(model: ResolvedModel) -> TextTokenizer | None:
    path = _tokenizer_path(model)
    return TextTokenizer(path) if path else None


def _tokenizer_path(model: ResolvedModel) -> Path | None:
    path = model.folder / "tokenizer.json" if model.folder else None
    return path if path and path.is_file() else None


def _prompt(scenario: Scenario, model: ResolvedModel, tokenizer: TextTokenizer | None) -> Prompt:
    given = scenario.workload
    if given.prompt is not None:
        if tokenizer is None:
            raise SettingError(
                ("workload", "prompt"),
                f"model {scenario.model!r} has no tokenizer to read text with; "
                "accepted: prompt_tokens (a length)" + (" or prompt_ids" if model.folder else ""),
            )
        ids = tuple(tokenizer.encode(given.prompt))
        if not ids:
            raise SettingError(("workload", "prompt"), f"no tokens come out of {given.prompt!r}")
        return Prompt(len(ids), ids, given.prompt)
    if given.prompt_ids is not None:
        ids = given.prompt_ids
        for i, item in enumerate(ids):
            if item >= model.config.vocab:
                raise SettingError(
                    ("workload", "prompt_ids", i),
                    f"read {item}; the model's token ids are 0 to {model.config.vocab - 1}",
                )
        return Prompt(len(ids), ids, tokenizer.decode(ids) if tokenizer else None)
    tokens = given.prompt_tokens
    assert tokens is not None, "the schema demands one of the three"
    if scenario.execution == "shape":
        return Prompt(tokens, None, None)
    return _window(given.prompt_window or "prose-0", tokens, model, tokenizer)


def _window(name: str, tokens: int, model: ResolvedModel, tokenizer: TextTokenizer | None) -> Prompt:
    """Return the first `tokens` ids of a held-out window, whose ids mean something to one tokenizer only."""
    held = heldout()
    path = _tokenizer_path(model)
    if path is None or hashlib.sha256(path.read_bytes()).hexdigest() != held.tokenizer_digest:
        raise SettingError(
            ("workload", "prompt_tokens"),
            "in an exact run a length takes its tokens from the demo model's held-out windows, whose "
            "tokenizer this model does not use; accepted: prompt (text) or prompt_ids",
        )
    kind, _, number = name.partition("-")
    windows = held.prose if kind == "prose" else held.code
    if int(number) >= len(windows):
        raise SettingError(
            ("workload", "prompt_window"), f"read {name!r}; accepted: {kind}-0 to {kind}-{len(windows) - 1}"
        )
    if tokens > windows.shape[1]:
        raise SettingError(
            ("workload", "prompt_tokens"), f"read {tokens}; a held-out window has {windows.shape[1]} tokens"
        )
    ids = tuple(int(item) for item in windows[int(number), :tokens])
    return Prompt(tokens, ids, tokenizer.decode(ids) if tokenizer else None)


def _check_stock(scenario: Scenario, model: ResolvedModel, prompt: Prompt) -> None:
    """Refuse a stock that cannot hold every piece of correlated randomness: server 1 needs each of them whole."""
    plan, layout = plan_of(scenario, model.config, prompt.tokens), layout_of(scenario)
    stock = stock_of(scenario.protocol)
    for system in scenario.systems:
        elements, op = largest_piece(model.config, plan, suite_of(system), layout)
        if elements > stock:
            raise SettingError(
                ("protocol", "dealer_stock"),
                f"a stock of {WORD_BYTES * stock:,} bytes cannot hold the largest piece of correlated randomness of "
                f"system {system.label!r}, {WORD_BYTES * elements:,} bytes at {op}; accepted: "
                f'"{WORD_BYTES * elements}B" or more, or another protocol.dealer',
            )


def _check_length(scenario: Scenario, model: ResolvedModel, prompt: Prompt) -> None:
    limit = model.config.max_positions
    total = prompt.tokens + scenario.workload.output_tokens
    if total > limit:
        raise SettingError(
            ("workload", "output_tokens"),
            f"{prompt.tokens} prompt tokens and {scenario.workload.output_tokens} output tokens are {total}, "
            f"but {scenario.model} has {limit} positions",
        )
