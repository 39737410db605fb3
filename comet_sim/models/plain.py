"""The plain decoder in float64 numpy: the reference every private run is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig
from comet_sim.models.rotary import rotary_tables
from comet_sim.mpc.suite import Reference

__all__ = ["PlainDecoder", "PlainState", "Record", "activate"]

Floats = NDArray[np.float64]
# Called with a name and an array: "<norm>/variance" (m,), of RMSNorm the mean square; and, where the activation
# is ReLU, "layer{i}/ffn/mask" (m, ffn) of bool.
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


class PlainDecoder:
    """A decoder on plain float64 weights; `weights` as `Checkpoint.weights`.

    With a `reference` it computes what a suite that replaces functions computes in their place.
    """

    __slots__ = ("config", "reference", "weights")

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, NDArray[np.floating]],
        reference: Reference | None = None,
    ) -> None:
        self.config = config
        self.reference = reference
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
        x = weights["embed"][ids]
        if config.rope is None:
            first = start + config.position_offset
            x = x + weights["positions"][first : first + len(ids)]
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
            x = x + self._feed_forward(f"layer{i}/ffn", y, record)
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
        product = x @ self.weights[f"{name}/weight"]
        bias = self.weights.get(f"{name}/bias")
        return product if bias is None else product + bias

    def _norm(self, name: str, x: Floats, record: Record | None) -> Floats:
        """LayerNorm, or RMSNorm, which neither centres nor adds a bias."""
        layer_norm = self.config.norm == "layernorm"
        centred = x - x.mean(axis=1, keepdims=True) if layer_norm else x
        variance = np.square(centred).mean(axis=1)
        if record is not None:
            record(f"{name}/variance", variance)
        unit = centred / np.sqrt(variance + self.config.norm_epsilon)[:, None]
        scaled: Floats = unit * self.weights[f"{name}/weight"]
        return scaled + self.weights[f"{name}/bias"] if layer_norm else scaled

    def _feed_forward(self, name: str, x: Floats, record: Record | None) -> Floats:
        """Return fc2(act(fc1(x))), or down(act(gate(x)) * up(x)) if the model is gated."""
        config = self.config
        first, last = ("gate", "down") if config.gated else ("fc1", "fc2")
        inner = self._linear(f"{name}/{first}", x)
        if record is not None and config.activation == "relu":
            record(f"{name}/mask", inner > 0)
        function = activate if self.reference is None else self.reference.activation
        active = function(config.activation, inner)
        if config.gated:
            active = active * self._linear(f"{name}/up", x)
        return self._linear(f"{name}/{last}", self._neurons_kept(name, x, inner, active))

    def _neurons_kept(self, name: str, x: Floats, inner: Floats, active: Floats) -> Floats:
        """Return what goes into the last product (m, ffn); subclasses set neurons to zero here."""
        return active

    def _turned(self, x: Floats, start: int) -> Floats:
        """Turn queries or keys (m, heads, head_dim) of positions from `start`, if positions are rotary."""
        config = self.config
        if config.rope is None:
            return x
        cosines, sines = rotary_tables(config.rope, config.head_dim, start, len(x))
        swapped = np.roll(x, config.head_dim // 2, axis=-1)
        turned: Floats = x * cosines[:, None] + swapped * sines[:, None]
        return turned

    def _attention(
        self, name: str, x: Floats, past: tuple[Floats, Floats] | None
    ) -> tuple[Floats, Floats, Floats]:
        """Attention output (m, hidden) and the keys and values of all tokens so far."""
        config, m = self.config, len(x)
        start = 0 if past is None else len(past[0])
        q = self._linear(f"{name}/q", x).reshape(m, config.heads, config.head_dim)
        k = self._linear(f"{name}/k", x).reshape(m, config.kv_heads, config.head_dim)
        v = self._linear(f"{name}/v", x).reshape(m, config.kv_heads, config.head_dim)
        q, k = self._turned(q, start), self._turned(k, start)
        if past is not None:
            k, v = np.concatenate((past[0], k)), np.concatenate((past[1], v))
        # Query heads g of group j share the K/V head j.
        grouped = q.reshape(m, config.kv_heads, -1, config.head_dim)
        scores: Floats = np.einsum("ijgd,tjd->jgit", grouped, k, optimize=True) * config.head_dim**-0.5
        total = len(k)
        future = np.arange(total)[None, :] > np.arange(total - m, total)[:, None]
        if self.reference is None:
            scores[..., future] = -np.inf
            exps = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights = exps / exps.sum(axis=-1, keepdims=True)
        else:
            weights = self.reference.softmax(scores, ~future)
        mixed = np.einsum("jgit,tjd->ijgd", weights, v, optimize=True).reshape(m, -1)
        return self._linear(f"{name}/o", self._heads_kept(name, x, mixed)), k, v

    def _heads_kept(self, name: str, x: Floats, mixed: Floats) -> Floats:
        """Return the heads' outputs side by side (m, heads * head_dim); subclasses set heads to zero here."""
        return mixed


def activate(function: str, x: Floats) -> Floats:
    """Apply an activation function elementwise; raises InputError for one this project does not know."""
    if function == "relu":
        return np.maximum(x, 0.0)
    if function == "gelu_tanh":
        return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))), np.float64)
    from scipy.special import erf, expit  # imported here: it takes longer than all the rest of the package

    if function == "gelu":
        return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))), np.float64)
    if function == "silu":
        return np.asarray(x * expit(x), np.float64)
    raise InputError(f"activation {function!r}: not known")
