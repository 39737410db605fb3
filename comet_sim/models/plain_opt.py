"""The plain OPT forward in float64 numpy: the reference every private run is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig

__all__ = ["PlainOPT", "PlainState", "Record"]

Floats = NDArray[np.float64]
# Called with a name and an array: "<norm>/variance" (m,) and "layer{i}/ffn/mask" (m, ffn) of bool.
Record = Callable[[str, NDArray[np.generic]], None]


@dataclass(frozen=True, slots=True)
class PlainState:
    """Keys and values of the tokens seen so far, per layer, each (tokens, heads, head_dim)."""

    keys: tuple[Floats, ...]
    values: tuple[Floats, ...]

    @property
    def length(self) -> int:
        """Number of tokens seen."""
        return len(self.keys[0]) if self.keys else 0


class PlainOPT:
    """OPT on plain float64 weights; `weights` as `Checkpoint.weights`."""

    __slots__ = ("config", "weights")

    def __init__(self, config: ModelConfig, weights: Mapping[str, NDArray[np.floating]]) -> None:
        self.config = config
        self.weights: dict[str, Floats] = {k: np.asarray(v, dtype=np.float64) for k, v in weights.items()}

    def forward(
        self, token_ids: ArrayLike, state: PlainState | None = None, record: Record | None = None
    ) -> tuple[Floats, PlainState]:
        """Logits (m, vocab) of m token ids that follow `state`, and the state after them.

        `record` receives each norm's input variances and each feed-forward's mask of active neurons.
        Raises InputError for ids outside the vocabulary or more tokens than the model has positions.
        """
        start = state.length if state is not None else 0
        ids = self._checked(token_ids, start)
        config, weights = self.config, self.weights
        rows = np.arange(start, start + len(ids)) + config.position_offset
        x = weights["embed"][ids] + weights["positions"][rows]
        keys: list[Floats] = []
        values: list[Floats] = []
        for i in range(config.layers):
            y = self._norm(f"layer{i}/attention/norm", x, record)
            past = (state.keys[i], state.values[i]) if state is not None else None
            y, k, v = self._attention(f"layer{i}/attention", y, past)
            keys.append(k)
            values.append(v)
            x = x + y
            y = self._norm(f"layer{i}/ffn/norm", x, record)
            hidden = self._linear(f"layer{i}/ffn/fc1", y)
            active = hidden > 0
            if record is not None:
                record(f"layer{i}/ffn/mask", active)
            x = x + self._linear(f"layer{i}/ffn/fc2", np.where(active, hidden, 0.0))
        logits = self._norm("final_norm", x, record) @ weights[config.head_name].T
        return logits, PlainState(tuple(keys), tuple(values))

    def generate(self, token_ids: Sequence[int], count: int) -> list[int]:
        """The `count` tokens greedy decoding adds; ties go to the lower id, an end token does not stop it."""
        logits, state = self.forward(token_ids)
        new: list[int] = []
        while len(new) < count:
            new.append(int(np.argmax(logits[-1])))
            if len(new) < count:
                logits, state = self.forward(new[-1:], state)
        return new

    def perplexity(self, windows: NDArray[np.integer]) -> float:
        """exp of the mean cross-entropy of every next token over windows (n, tokens)."""
        total, count = 0.0, 0
        for window in windows:
            logits, _ = self.forward(window[:-1])
            peak = logits.max(axis=1)
            normaliser = peak + np.log(np.exp(logits - peak[:, None]).sum(axis=1))
            total += float((normaliser - logits[np.arange(len(logits)), window[1:]]).sum())
            count += len(logits)
        return float(np.exp(total / count))

    def _checked(self, token_ids: ArrayLike, start: int) -> NDArray[np.int64]:
        ids = np.asarray(token_ids)
        if ids.ndim != 1 or not len(ids) or not np.issubdtype(ids.dtype, np.integer):
            raise InputError(
                f"token ids: expected at least one whole number, read shape {ids.shape} {ids.dtype}"
            )
        if ids.min() < 0 or ids.max() >= self.config.vocab:
            bad = int(ids.min() if ids.min() < 0 else ids.max())
            raise InputError(f"token id {bad}: {self.config.name} has ids 0 to {self.config.vocab - 1}")
        if start + len(ids) > self.config.max_positions:
            raise InputError(
                f"{start + len(ids)} tokens: {self.config.name} has {self.config.max_positions} positions"
            )
        return ids.astype(np.int64)

    def _linear(self, name: str, x: Floats) -> Floats:
        return x @ self.weights[f"{name}/weight"] + self.weights[f"{name}/bias"]

    def _norm(self, name: str, x: Floats, record: Record | None) -> Floats:
        centred = x - x.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1)
        if record is not None:
            record(f"{name}/variance", variance)
        unit = centred / np.sqrt(variance + self.config.norm_epsilon)[:, None]
        scaled: Floats = unit * self.weights[f"{name}/weight"] + self.weights[f"{name}/bias"]
        return scaled

    def _attention(
        self, name: str, x: Floats, past: tuple[Floats, Floats] | None
    ) -> tuple[Floats, Floats, Floats]:
        """Attention output (m, hidden) and the keys and values of all tokens so far."""
        config, m = self.config, len(x)
        q = self._linear(f"{name}/q", x).reshape(m, config.heads, config.head_dim)
        k = self._linear(f"{name}/k", x).reshape(m, config.kv_heads, config.head_dim)
        v = self._linear(f"{name}/v", x).reshape(m, config.kv_heads, config.head_dim)
        if past is not None:
            k, v = np.concatenate((past[0], k)), np.concatenate((past[1], v))
        scores = np.einsum("ihd,jhd->hij", q, k, optimize=True) * config.head_dim**-0.5
        total = len(k)
        future = np.arange(total)[None, :] > np.arange(total - m, total)[:, None]
        scores[:, future] = -np.inf
        exps = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights = exps / exps.sum(axis=2, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", weights, v, optimize=True).reshape(m, -1)
        return self._linear(f"{name}/o", mixed), k, v
