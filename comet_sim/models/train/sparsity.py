"""Sparsity in training: a penalty on activations, and heads that are skipped where they contribute little.

Both hook into a transformers model, which stays as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Activity", "HeadSkipping"]

_THRESHOLD_MEMORY = 0.9


class Activity:
    """Watches the feed-forwards' activation functions during a forward pass."""

    def __init__(self, functions: list[Any]) -> None:
        self._means: list[Tensor] = []
        self._zeros: list[Tensor] = []
        for function in functions:
            function.register_forward_hook(self._watch)

    def _watch(self, module: Any, inputs: Any, output: Tensor) -> None:
        self._means.append(output.abs().mean())
        self._zeros.append((output.detach() == 0).float().mean())

    def take(self) -> tuple[Tensor, list[float]]:
        """Return the mean absolute activation and each layer's share of zeros of the pass, and forget both."""
        mean = torch.stack(self._means).mean()
        zeros = [float(value) for value in self._zeros]
        self._means.clear()
        self._zeros.clear()
        return mean, zeros


class HeadSkipping:
    """Zeroes a head's output h for a token where ||W_o,h h|| is below the layer's threshold.

    In training a threshold follows the `share` quantile of those norms; otherwise it stays. `share` 0: no head is
    skipped. `projections` are the layers' output projections, whose inputs are the heads side by side.
    """

    def __init__(self, projections: list[Any], heads: int) -> None:
        self.heads = heads
        self.share = 0.0
        self.active = True
        self.thresholds = [0.0] * len(projections)
        self._active = [1.0] * len(projections)
        for layer, projection in enumerate(projections):
            projection.register_forward_pre_hook(self._hook(layer))

    def take(self) -> list[float]:
        """Return each layer's share of heads that stayed active in the last pass (1 where none is skipped)."""
        found, self._active = self._active, [1.0] * len(self._active)
        return found

    def _hook(self, layer: int) -> Any:
        def skip(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if not self.active or not self.share:
                return None
            mixed = inputs[0]
            parts = mixed.reshape(*mixed.shape[:-1], self.heads, -1)
            norms = self._contributions(module.weight, parts)
            if module.training:
                self._follow(layer, norms)
            kept = (norms >= self.thresholds[layer]).to(mixed.dtype)
            self._active[layer] = float(kept.mean())
            return ((parts * kept.unsqueeze(-1)).flatten(-2), *inputs[1:])

        return skip

    @torch.no_grad()
    def _contributions(self, weight: Tensor, parts: Tensor) -> Tensor:
        """Return ||W_o,h h|| of each head (..., heads), by the Gram matrix of each block of the weight."""
        blocks = weight.reshape(len(weight), self.heads, -1).permute(1, 0, 2)
        gram = blocks.transpose(1, 2) @ blocks
        turned = torch.einsum("...he,hef->...hf", parts, gram)
        return (turned * parts).sum(-1).clamp_min(0).sqrt()

    def _follow(self, layer: int, norms: Tensor) -> None:
        met = float(torch.quantile(norms.flatten(), self.share))
        before = self.thresholds[layer]
        self.thresholds[layer] = (
            met if not before else _THRESHOLD_MEMORY * before + (1 - _THRESHOLD_MEMORY) * met
        )
