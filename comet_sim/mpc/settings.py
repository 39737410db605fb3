"""How long approximations run and which way a protocol takes where there are several: plain data."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from comet_sim.errors import InputError

__all__ = [
    "CRYPTEN_WAY",
    "Adder",
    "Division",
    "Erf",
    "Iterations",
    "MaxMethod",
    "Operands",
    "Steps",
    "Tanh",
    "Truncation",
    "Variants",
    "Where",
]

MaxMethod = Literal["pairwise", "log_reduction", "double_log_reduction", "accelerated_cascade", "tree"]
Adder = Literal["crypten", "single-open", "carry"]
Where = Literal["two-products", "one-product"]
Erf = Literal["exponential", "taylor"]
Tanh = Literal["reciprocal", "chebyshev"]
Truncation = Literal["local", "interactive"]
Division = Literal["row", "element"]
Steps = Literal["parallel", "sequence"]
Operands = Literal["shared", "expanded"]

_CHOICES = {
    "max": get_args(MaxMethod),
    "argmax": (True, False),
    "adder": get_args(Adder),
    "where": get_args(Where),
    "erf": get_args(Erf),
    "tanh": get_args(Tanh),
}


@dataclass(frozen=True, slots=True)
class Iterations:
    """How long each approximation runs; the defaults are CrypTen 0.4.1's.

    `exp` squarings of the exponential; `reciprocal`, `inverse_sqrt` Newton steps; `sigmoid` Newton steps of
    the reciprocal inside sigmoid and tanh; `log` Householder steps, each an exponential of `log_exp` squarings
    and a polynomial of degree `log_order`; `trig` squarings of cosine and sine; `erf` terms of the Taylor
    series after the first; `chebyshev` terms of the Chebyshev tanh.
    """

    exp: int = 8
    reciprocal: int = 10
    inverse_sqrt: int = 3
    sigmoid: int = 3
    log: int = 2
    log_exp: int = 8
    log_order: int = 8
    trig: int = 10
    erf: int = 8
    chebyshev: int = 32

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 1 <= value <= 62:
                raise InputError(
                    f"iterations: {field.name} must be an integer from 1 to 62, but read {value!r}"
                )
        if self.chebyshev < 4 or self.chebyshev % 2:
            raise InputError(f"iterations: chebyshev must be even and at least 4, but read {self.chebyshev}")


@dataclass(frozen=True, slots=True)
class Variants:
    """Which way protocols go; the defaults cost what CrypTen 0.4.1 costs, but for erf (and GELU by it).

    `max` is one of CrypTen's four ways, or `tree`: halvings down to one entry. `argmax` keeps the argmax
    CrypTen computes in every max and nothing uses. `adder` is CrypTen's, which opens the propagate word twice
    a level, or `single-open`; or `carry`: comparisons compute the one carry they need, in ever narrower lanes, and
    choose by a bit shared by XOR. `where` chooses by two products in sequence, or by one. `erf` is an exponential,
    right up to 17, or `taylor`, the series that CrypTen sums, at its cost and right up to 1.5; `tanh` is CrypTen's
    default or its Chebyshev series, right on [-1, 1]. InputError for other values.

    Sources: CrypTen's ways, Knott et al. 2021. `tree`, the tournament of textbooks (JaJa 1992); `one-product`, the
    usual multiplexer of two-party computation; `single-open` and the exponential erf, reconstruction; `carry`,
    SPU 0.9.5, counts measured.
    """

    max: MaxMethod = "log_reduction"
    argmax: bool = True
    adder: Adder = "crypten"
    where: Where = "two-products"
    erf: Erf = "exponential"
    tanh: Tanh = "reciprocal"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                known = ", ".join(map(repr, choices))
                raise InputError(f"variants: {name} must be one of {known}, but read {value!r}")


CRYPTEN_WAY = Variants()
"""CrypTen 0.4.1's choices, but for its erf."""
