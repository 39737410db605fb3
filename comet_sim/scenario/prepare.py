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
    """A scenario that can be run: its model, prompts (of equal length) and network, with all names resolved."""

    model: ResolvedModel
    prompts: tuple[Prompt, ...]
    network: NetworkSpec
    tokenizer: TextTokenizer | None

    @property
    def prompt(self) -> Prompt:
        """The first prompt: all there is unless several are served together."""
        return self.prompts[0]


def prepare(scenario: Scenario) -> Prepared:
    """Resolve the scenario's model, prompts and network; loads no weights.

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
    prompts = _prompts(scenario, model, tokenizer)
    _check_length(scenario, model, prompts[0])
    if scenario.workload.stop == "eos" and model.config.eos_id is None:
        raise SettingError(("workload", "stop"), "the model has no end-of-sequence token; accepted: length")
    if scenario.protocol.dealer == "streamed":
        _check_stock(scenario, model, prompts[0])
    return Prepared(model, prompts, scenario.network.spec(), tokenizer)


def _tokenizer(model: ResolvedModel) -> TextTokenizer | None:
    path = _tokenizer_path(model)
    return TextTokenizer(path) if path else None


def _tokenizer_path(model: ResolvedModel) -> Path | None:
    path = model.folder / "tokenizer.json" if model.folder else None
    return path if path and path.is_file() else None


def _prompts(scenario: Scenario, model: ResolvedModel, tokenizer: TextTokenizer | None) -> tuple[Prompt, ...]:
    given, key = scenario.workload, "workload"
    if given.prompt is not None:
        return (_of_text(given.prompt, (key, "prompt"), scenario, model, tokenizer),)
    if given.prompt_ids is not None:
        return (_of_ids(given.prompt_ids, (key, "prompt_ids"), model, tokenizer),)
    if given.prompts is not None:
        found = tuple(
            _of_text(entry, (key, "prompts", i), scenario, model, tokenizer)
            if isinstance(entry, str)
            else _of_ids(entry, (key, "prompts", i), model, tokenizer)
            for i, entry in enumerate(given.prompts)
        )
        lengths = [prompt.tokens for prompt in found]
        if len(set(lengths)) > 1:
            raise SettingError(
                (key, "prompts"),
                f"prompts served together have equally many tokens, but these have {', '.join(map(str, lengths))}",
            )
        return found
    tokens = given.prompt_tokens
    assert tokens is not None, "the schema demands one of the four"
    if scenario.execution == "shape":
        return (Prompt(tokens, None, None),) * given.batch
    return _windows(given.prompt_window or "prose-0", tokens, given.batch, model, tokenizer)


def _of_text(
    text: str,
    key: tuple[str | int, ...],
    scenario: Scenario,
    model: ResolvedModel,
    tokenizer: TextTokenizer | None,
) -> Prompt:
    if tokenizer is None:
        raise SettingError(
            key,
            f"model {scenario.model!r} has no tokenizer to read text with; "
            "accepted: prompt_tokens (a length)" + (" or prompt_ids" if model.folder else ""),
        )
    ids = tuple(tokenizer.encode(text))
    if not ids:
        raise SettingError(key, f"no tokens come out of {text!r}")
    return Prompt(len(ids), ids, text)


def _of_ids(
    ids: tuple[int, ...],
    key: tuple[str | int, ...],
    model: ResolvedModel,
    tokenizer: TextTokenizer | None,
) -> Prompt:
    for i, item in enumerate(ids):
        if item >= model.config.vocab:
            raise SettingError(
                (*key, i), f"read {item}; the model's token ids are 0 to {model.config.vocab - 1}"
            )
    return Prompt(len(ids), ids, tokenizer.decode(ids) if tokenizer else None)


def _windows(
    name: str, tokens: int, batch: int, model: ResolvedModel, tokenizer: TextTokenizer | None
) -> tuple[Prompt, ...]:
    """Return the first `tokens` ids of held-out windows in a row, which mean something to one tokenizer only."""
    held = heldout()
    path = _tokenizer_path(model)
    if path is None or hashlib.sha256(path.read_bytes()).hexdigest() != held.tokenizer_digest:
        raise SettingError(
            ("workload", "prompt_tokens"),
            "in an exact run a length takes its tokens from the demo model's held-out windows, whose "
            "tokenizer this model does not use; accepted: prompt (text) or prompt_ids",
        )
    kind, _, number = name.partition("-")
    windows, first = held.prose if kind == "prose" else held.code, int(number)
    if batch > len(windows):
        raise SettingError(
            ("workload", "batch"),
            f"read {batch}; there are {len(windows)} windows of {kind} to take prompt_tokens from, accepted: "
            f"at most as many, or prompts",
        )
    if first + batch > len(windows):
        several = f" with a batch of {batch}" if batch > 1 else ""
        raise SettingError(
            ("workload", "prompt_window"),
            f"read {name!r}{several}; accepted: {kind}-0 to {kind}-{len(windows) - batch}",
        )
    if tokens > windows.shape[1]:
        raise SettingError(
            ("workload", "prompt_tokens"), f"read {tokens}; a held-out window has {windows.shape[1]} tokens"
        )
    every = (tuple(map(int, window[:tokens])) for window in windows[first : first + batch])
    return tuple(Prompt(tokens, ids, tokenizer.decode(ids) if tokenizer else None) for ids in every)


def _check_stock(scenario: Scenario, model: ResolvedModel, prompt: Prompt) -> None:
    """Refuse a stock that cannot hold every piece of correlated randomness: server 1 needs each of them whole."""
    layout = layout_of(scenario)
    stock = stock_of(scenario.protocol)
    for system in scenario.systems:
        plan = plan_of(scenario, model.config, prompt.tokens, system)
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
