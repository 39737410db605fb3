"""The plain decoder with neurons and heads skipped: the reference of every run that skips.

Skipped means set to zero for that token only. A skipped head still has keys and values of the token, which
later tokens may attend to: a private run computes them when they are first needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from comet_sim.errors import InputError
from comet_sim.models.config import ModelConfig
from comet_sim.models.plain import PlainDecoder
from comet_sim.mpc.suite import Reference

__all__ = [
    "Ask",
    "Bools",
    "Floats",
    "MaskSource",
    "Observe",
    "Part",
    "SkippingDecoder",
    "all_active",
    "by_part",
    "in_order",
    "true_masks",
]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Part = Literal["ffn", "heads"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One mask that is wanted: of m tokens' neurons (m, ffn) or heads (m, heads) in one layer.

    `inputs` (m, hidden) are the block's normalised inputs, what a predictor sees; `early` the layer's, which are the
    attention's: what one that looks ahead sees. `truth` is the mask computed from the block itself: a neuron is
    active where the input of its ReLU is positive, a head h where ||W_o,h h|| reaches the layer's threshold; all ones
    for other activations and without thresholds.
    """

    part: Part
    layer: int
    inputs: Floats
    truth: Bools
    early: Floats


MaskSource = Callable[[Ask], Bools]
"""Returns the mask to run with, of the shape of `truth`."""
Observe = Callable[[Ask, Bools], None]
"""Takes each mask that is asked for and the one that was used, in the order of the forward pass."""


def true_masks(ask: Ask) -> Bools:
    """Use the true masks."""
    return ask.truth


def all_active(ask: Ask) -> Bools:
    """Skip nothing."""
    return np.ones_like(ask.truth)


def by_part(*, ffn: MaskSource = all_active, heads: MaskSource = all_active) -> MaskSource:
    """Return a source that asks one source for neurons and another for heads."""
    return lambda ask: ffn(ask) if ask.part == "ffn" else heads(ask)


def in_order(masks: Iterable[tuple[Part, int, Bools]]) -> MaskSource:
    """Return a source of masks that were recorded as (part, layer, mask), in the order of the forward passes.

    Raises InputError when the next mask is of another part, layer or shape than asked for, or none is left.
    """
    left = iter(masks)

    def source(ask: Ask) -> Bools:
        part, layer, mask = next(left, (None, -1, None))
        if (part, layer) != (ask.part, ask.layer) or mask is None or mask.shape != ask.truth.shape:
            found = "none is left" if mask is None else f"the next is {part} of layer {layer}, {mask.shape}"
            raise InputError(
                f"recorded masks: {ask.part} of layer {ask.layer}, {ask.truth.shape}, is wanted, {found}"
            )
        return mask

    return source


class SkippingDecoder(PlainDecoder):
    """A plain decoder that runs with the masks `source` gives; `head_thresholds` as in the checkpoint's metadata.

    With `true_masks` for the neurons and all heads it computes what PlainDecoder does, to the last bit but for
    the sign of zeros.
    """

    __slots__ = ("_early", "_grams", "_thresholds", "observe", "source")

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, NDArray[np.floating]],
        source: MaskSource = true_masks,
        *,
        head_thresholds: Sequence[float] = (),
        observe: Observe | None = None,
        reference: Reference | None = None,
    ) -> None:
        super().__init__(config, weights, reference)
        if len(head_thresholds) not in (0, config.layers):
            raise InputError(f"head thresholds: {len(head_thresholds)} numbers for {config.layers} layers")
        self.source = source
        self.observe = observe
        self._thresholds = tuple(head_thresholds)
        self._early = np.zeros((0, config.hidden))
        self._grams = [self._gram(i) for i in range(config.layers)] if head_thresholds else []

    def _gram(self, layer: int) -> Floats:
        """Return W_o,h W_o,h^T of each head (heads, head_dim, head_dim): norms of contributions follow from it."""
        blocks = self.weights[f"layer{layer}/attention/o/weight"].reshape(
            self.config.heads, self.config.head_dim, -1
        )
        gram: Floats = blocks @ blocks.transpose(0, 2, 1)
        return gram

    def _mask(self, ask: Ask) -> Bools:
        mask = self.source(ask)
        if self.observe is not None:
            self.observe(ask, mask)
        return mask

    def _neurons_kept(self, name: str, x: Floats, inner: Floats, active: Floats) -> Floats:
        truth = inner > 0 if self.config.activation == "relu" else np.ones(inner.shape, np.bool_)
        kept: Floats = active * self._mask(Ask("ffn", _layer(name), x, truth, self._early))
        return kept

    def _heads_kept(self, name: str, x: Floats, mixed: Floats) -> Floats:
        layer, config = _layer(name), self.config
        self._early = x
        parts = mixed.reshape(len(mixed), config.heads, config.head_dim)
        if self._thresholds:
            turned = np.matmul(parts.transpose(1, 0, 2), self._grams[layer]).transpose(1, 0, 2)
            norms = np.sqrt(np.maximum((turned * parts).sum(axis=-1), 0.0))
            truth = norms >= self._thresholds[layer]
        else:
            truth = np.ones(parts.shape[:2], np.bool_)
        mask = self._mask(Ask("heads", layer, x, truth, x))
        kept: Floats = (parts * mask[:, :, None]).reshape(mixed.shape)
        return kept


def _layer(name: str) -> int:
    """Layer of a block's name, such as layer3/ffn."""
    return int(name.partition("/")[0].removeprefix("layer"))
