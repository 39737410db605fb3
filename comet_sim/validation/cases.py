"""Operations that a real framework and comet-sim both have, with inputs in the domain of both."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from comet_sim.baselines.crypten import CRYPTEN
from comet_sim.kernel import generator
from comet_sim.mpc import activations, beaver, compare, elementary, functions, maximum
from comet_sim.mpc.session import Session
from comet_sim.testing import Public

__all__ = ["CASES", "Case"]

Floats = NDArray[np.float64]
Program = Callable[..., Coroutine[Any, Any, Any]]
_STEPS, _WAY = CRYPTEN.iterations, CRYPTEN.variants


@dataclass(frozen=True, slots=True)
class Case:
    """One operation: `program` is ours, `plain` what it approximates, `draw` says which inputs `size` stands for.

    `integer` is set where the result is no fixed-point number but a bit.
    """

    op: str
    program: Program
    plain: Callable[..., Floats]
    draw: Callable[[np.random.Generator, int], tuple[Floats, ...]]
    more: tuple[Any, ...] = ()
    integer: bool = False

    def inputs(self, size: int, seed: int) -> tuple[Floats, ...]:
        """Return the operands for a size: elements, or columns of 8 rows, or the inner width of a product."""
        return self.draw(generator(seed, "validate", self.op), size)

    def arguments(self) -> tuple[Public, ...]:
        """Return what the program takes after its operands."""
        return tuple(map(Public, self.more))


async def _reveal(s: Session, x: Any) -> Any:
    # Opened values are public: each server holds all, so only one of them may count as a share.
    (opened,) = await s.open(x)
    return opened if s.index == 0 else opened - opened


async def _product(s: Session, x: Any, y: Any) -> Any:
    return s.truncate(await beaver.multiply(s, x, y))


async def _square(s: Session, x: Any) -> Any:
    return s.truncate(await beaver.square(s, x))


async def _matmul(s: Session, x: Any, y: Any) -> Any:
    return s.truncate(await beaver.matmul(s, x, y))


async def _softmax(s: Session, x: Any) -> Any:
    return await CRYPTEN.softmax(s, x, None)


def _normal(scale: float, operands: int = 1) -> Callable[[np.random.Generator, int], tuple[Floats, ...]]:
    return lambda rng, n: tuple(rng.normal(scale=scale, size=n) for _ in range(operands))


def _between(
    low: float, high: float, operands: int = 1
) -> Callable[[np.random.Generator, int], tuple[Floats, ...]]:
    return lambda rng, n: tuple(rng.uniform(low, high, n) for _ in range(operands))


def _rows(rng: np.random.Generator, n: int) -> tuple[Floats, ...]:
    return (rng.normal(size=(8, n)),)


def _matrices(rng: np.random.Generator, n: int) -> tuple[Floats, ...]:
    return rng.normal(size=(8, n)), rng.normal(size=(n, 16))


def _permuted(rng: np.random.Generator, n: int) -> tuple[Floats, ...]:
    return np.arange(n, dtype=np.float64), rng.permutation(n).astype(np.float64)


def _exponents(x: Floats) -> Floats:
    shifted = np.exp(x - x.max(1, keepdims=True))
    weights: Floats = shifted / shifted.sum(1, keepdims=True)
    return weights


_ONE = _normal(2.0)
CASES: tuple[Case, ...] = (
    Case("reveal", _reveal, lambda x: x, _ONE),
    Case("multiply", _product, np.multiply, _normal(2.0, 2)),
    Case("square", _square, np.square, _ONE),
    Case("matmul", _matmul, np.matmul, _matrices),
    Case("less than zero", compare.less_than_zero, lambda x: (x < 0).astype(float), _ONE, integer=True),
    Case("equal", compare.equal, lambda x, y: (x == y).astype(float), _permuted, integer=True),
    Case("sign", compare.sign, np.sign, _ONE, integer=True),
    Case("absolute", compare.absolute, np.abs, _ONE),
    Case("relu", compare.relu, lambda x: np.maximum(x, 0), _ONE),
    Case("hardtanh", compare.hardtanh, lambda x: np.clip(x, -1, 1), _ONE),
    Case("exp", functions.exp, np.exp, _between(-4, 2), (_STEPS,)),
    Case("log", functions.log, np.log, _between(0.5, 50), (_STEPS,)),
    Case("reciprocal", elementary.signed_reciprocal, lambda x: 1 / x, _between(0.5, 20), (_STEPS,)),
    Case("divide", elementary.divide, np.divide, _between(0.5, 20, 2), (_STEPS,)),
    Case("square root", elementary.square_root, np.sqrt, _between(0.5, 50), (_STEPS,)),
    Case(
        "inverse square root", functions.inverse_sqrt, lambda x: 1 / np.sqrt(x), _between(0.5, 50), (_STEPS,)
    ),
    Case("sigmoid", activations.sigmoid, lambda x: 1 / (1 + np.exp(-x)), _ONE, (_STEPS,)),
    Case("tanh", activations.tanh, np.tanh, _ONE, (_STEPS,)),
    Case("maximum", maximum.maximum, lambda x: x.max(1), _rows, (_WAY,)),
    Case("softmax", _softmax, _exponents, _rows),
    Case("log softmax", functions.log_softmax, lambda x: np.log(_exponents(x)), _rows, (_STEPS, _WAY)),
)
"""Every operation that can be compared, by the names `comet-sim validate --op` takes."""
