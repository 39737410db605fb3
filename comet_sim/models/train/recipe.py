"""How each demo model is trained: dimensions, stages, and what the schedules of a stage give at a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from types import MappingProxyType

from comet_sim.errors import InputError

__all__ = ["RECIPES", "Recipe", "Stage"]

_WARM_UP = 0.05
_LAST_RATE = 0.1


@dataclass(frozen=True, slots=True)
class Stage:
    """A number of steps with their learning rate, activity penalty and share of skipped heads.

    `penalty` and `skipped` go from a first to a last value between two fractions of the stage (`ramp`), the
    penalty along half a cosine, the heads in a line. The rate warms up, then falls to a tenth along half a cosine.
    """

    steps: int
    rate: float
    penalty: tuple[float, float] = (0.0, 0.0)
    skipped: tuple[float, float] = (0.0, 0.0)
    ramp: tuple[float, float] = (0.0, 1.0)

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, from 0."""
        warm = max(1, round(self.steps * _WARM_UP))
        if step < warm:
            return self.rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.rate * (_LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + cos(pi * done)))

    def penalty_at(self, step: int) -> float:
        """Weight of the mean absolute activation in the loss."""
        first, last = self.penalty
        return first + (last - first) * 0.5 * (1 - cos(pi * self._ramped(step)))

    def skipped_at(self, step: int) -> float:
        """Share of heads skipped."""
        first, last = self.skipped
        return first + (last - first) * self._ramped(step)

    def _ramped(self, step: int) -> float:
        begin, end = self.ramp
        return min(1.0, max(0.0, (step / self.steps - begin) / (end - begin)))


@dataclass(frozen=True, slots=True)
class Recipe:
    """A demo model: transformers' model type and dimensions, batch and stages."""

    name: str
    architecture: str
    ffn: int
    stages: tuple[Stage, ...]
    layers: int = 4
    hidden: int = 160
    heads: int = 8
    vocab: int = 2048
    positions: int = 256
    batch: int = 16
    length: int = 128

    @property
    def steps(self) -> int:
        """Steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def shortened(self, steps: int) -> tuple[Stage, ...]:
        """Return the stages cut in proportion to `steps` steps altogether, at least one each."""
        if steps < len(self.stages):
            raise InputError(f"steps: read {steps}, accepted: a whole number from {len(self.stages)}")
        total, before, stages = self.steps, 0, []
        ends = [sum(stage.steps for stage in self.stages[: i + 1]) for i in range(len(self.stages))]
        for left, (stage, end) in enumerate(zip(self.stages, ends, strict=True), 1 - len(self.stages)):
            until = min(max(round(steps * end / total), before + 1), steps + left)
            stages.append(Stage(until - before, stage.rate, stage.penalty, stage.skipped, stage.ramp))
            before = until
        return tuple(stages)


# Zeros come from the penalty; heads can only be skipped if that was trained in.
_OPT = Recipe(
    "opt-demo",
    "opt",
    640,
    (
        Stage(800, 3e-3),
        Stage(400, 2e-3, penalty=(0.0, 0.5), skipped=(0.0, 0.5), ramp=(0.0, 0.4)),
    ),
)
_LLAMA = Recipe(
    "reglu-llama-demo",
    "llama",
    432,
    (
        Stage(700, 3e-3, penalty=(0.0, 0.2), ramp=(0.1, 0.6)),
        Stage(400, 2e-3, penalty=(0.2, 0.2), skipped=(0.0, 0.5), ramp=(0.0, 0.4)),
    ),
)
RECIPES = MappingProxyType({recipe.name: recipe for recipe in (_OPT, _LLAMA)})
"""Recipes by the demo model's name."""
