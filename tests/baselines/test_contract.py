"""What every system must keep: its stated error, its stated costs, shapes that trace like values, private views.

A suite that is registered needs an entry in `SYSTEMS`; variants of a suite may have one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from views import even_bytes, same_bytes

from comet_sim.baselines import SUITES
from comet_sim.mpc import lanes, truncation
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Truncation
from comet_sim.roles.dealer import Dealing
from comet_sim.testing import Public, run_protocol

ALPHA = 1e-6  # chance that a sound suite fails one of some three hundred comparisons; seeds are fixed
ULP = 2.0**-16
erf = np.vectorize(math.erf)
TRUTH: dict[str, Callable[[Any], Any]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / 2**0.5)) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@dataclass(frozen=True)
class Function:
    """An activation: its range on both sides of 0, the error it may have there, rounds and bytes an element."""

    reach: float
    error: float
    rounds: int
    each: int


@dataclass(frozen=True)
class Costs:
    """Rounds and bytes of r rows of L entries, or of width d."""

    rounds: Callable[[int], int]
    bytes: Callable[[int, int], int]


@dataclass(frozen=True)
class System:
    """A suite and what it promises. `softmax_error` is for scores drawn with a spread of 3 (1 for quadratics)."""

    suite: Any
    functions: Mapping[str, Function]
    softmax: Costs | None
    softmax_error: float
    norm: Costs
    norm_error: float = 0.006
    truncation: Truncation = "local"
    bits: int = 16


def halvings(length: int) -> int:
    return (length - 1).bit_length()


CRYPTEN_NORM = Costs(lambda d: 20, lambda r, d: r * (24 * d + 192) + 8 * d)
PUMA_NORM = Costs(lambda d: 22, lambda r, d: r * (24 * d + 388) + 8 * d)
CRYPTEN = {
    "relu": Function(30_000, ULP, 9, 232),
    "gelu": Function(24, 0.002, 20, 336),
    "silu": Function(500, 0.025, 24, 392),
}
TWO_QUAD = Costs(lambda L: 30, lambda r, L: r * (16 * L + 312))
SYSTEMS = {
    # What softmax by CrypTen's maxima costs is compared with real CrypTen in tests/mpc/test_crypten_counts.py.
    "crypten": System(SUITES["crypten"], CRYPTEN, None, 0.012, CRYPTEN_NORM),
    "crypten-accurate": System(
        SUITES["crypten-accurate"],
        CRYPTEN | {"silu": Function(500, 0.025, 27, 424)},
        None,
        0.012,
        Costs(lambda d: 30, lambda r, d: r * (24 * d + 320) + 8 * d),
    ),
    "crypten-lean": System(
        SUITES["crypten-lean"],
        {
            "relu": Function(30_000, ULP, 9, 176),
            "gelu": Function(24, 0.002, 20, 280),
            "silu": Function(500, 0.025, 23, 320),
        },
        Costs(lambda L: 9 * halvings(L) + 37, lambda r, L: r * (176 * (L - 1) + 72 * L + 312)),
        0.012,
        CRYPTEN_NORM,
    ),
    "puma": System(
        SUITES["puma"],
        {
            "relu": Function(30_000, ULP, 9, 232),
            "gelu": Function(8, 0.021, 12, 736),
            "silu": Function(16, 0.073, 12, 728),
        },
        Costs(lambda L: 10 * halvings(L) + 33, lambda r, L: r * (248 * (L - 1) + 280 * L + 388)),
        0.08,
        PUMA_NORM,
    ),
    "puma, carry": System(
        SUITES["puma"].choosing({"adder": "carry"}),
        {
            "relu": Function(30_000, ULP, 8, 72),
            "gelu": Function(8, 0.021, 11, 256),
            "silu": Function(16, 0.073, 11, 248),
        },
        Costs(lambda L: 8 * halvings(L) + 32, lambda r, L: r * (72 * (L - 1) + 120 * L + 388)),
        0.08,
        PUMA_NORM,
    ),
    "puma, native": System(
        SUITES["puma"].choosing({"native": True}),
        {
            "relu": Function(30_000, ULP, 8, 72),
            "gelu": Function(30, 0.021, 39, 324),
            "silu": Function(30, 0.073, 36, 300),
        },
        Costs(lambda L: 8 * halvings(L) + 57, lambda r, L: r * (72 * (L - 1) + 156 * L + 505)),
        0.08,
        Costs(lambda d: 34, lambda r, d: r * (60 * d + 437)),
        truncation="interactive",
        bits=18,
    ),
    "mpcformer": System(
        SUITES["mpcformer"],
        CRYPTEN | {"gelu": Function(500, 3 * ULP, 1, 8)},
        TWO_QUAD,
        0.002,
        CRYPTEN_NORM,
    ),
    "mpcformer, native": System(
        SUITES["mpcformer"].choosing({"native": True}),
        CRYPTEN | {"gelu": Function(500, 500 * ULP, 1, 16)},
        Costs(lambda L: 40, lambda r, L: r * (24 * L + 560)),
        0.002,
        CRYPTEN_NORM,
    ),
}
SYSTEMS |= {
    "secformer": System(
        SUITES["secformer"],
        CRYPTEN | {"gelu": Function(500, 0.06, 11, 484)},
        Costs(lambda L: 15, lambda r, L: r * (16 * L + 304)),
        0.002,
        Costs(lambda d: 18, lambda r, d: r * (24 * d + 288) + 8 * d),
    ),
    "secformer, native": System(
        SUITES["secformer"].choosing({"native": True}),
        CRYPTEN | {"gelu": Function(500, 0.06, 19, 472)},
        Costs(lambda L: 27, lambda r, L: r * (24 * L + 408)),
        0.002,
        Costs(lambda d: 26, lambda r, d: r * (24 * d + 312) + 8 * d),
    ),
}
NAMES = tuple(SYSTEMS)


def run(name: str, program: Any, *inputs: Any, **more: Any) -> Any:
    """Run a program on a system's own terms."""
    system = SYSTEMS[name]
    return run_protocol(program, *inputs, bits=system.bits, truncation=system.truncation, **more)


def program(name: str, op: str) -> Any:
    """Return an operation of a system as a program over shares."""
    suite = SYSTEMS[name].suite

    async def softmax(s: Session, x: Any, allowed: Any) -> Any:
        return await suite.softmax(s, x, allowed)

    async def layer_norm(s: Session, x: Any, weight: Any, bias: Any) -> Any:
        return await suite.layer_norm(s, x, weight, bias, exponent=1, epsilon=1e-5)

    async def rms_norm(s: Session, x: Any, weight: Any) -> Any:
        return await suite.rms_norm(s, x, weight, exponent=-1, epsilon=1e-5)

    async def activation(s: Session, x: Any) -> Any:
        return await suite.activation(s, x, op)

    return {"softmax": softmax, "layer_norm": layer_norm, "rms_norm": rms_norm}.get(op, activation)


def truth(name: str, op: str, x: Any) -> Any:
    """Return what the suite stands for: the function itself, or what it puts in its place."""
    reference = SYSTEMS[name].suite.reference
    return TRUTH[op](x) if reference is None else reference.activation(op, x)


def soft(name: str, x: Any, allowed: Any) -> Any:
    """Return softmax, or what the suite puts in its place."""
    reference = SYSTEMS[name].suite.reference
    allowed = np.ones(x.shape, bool) if allowed is None else np.broadcast_to(allowed, x.shape)
    if reference is not None:
        return reference.softmax(x, allowed)
    x = np.where(allowed, x, -np.inf)
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_every_suite_has_a_contract() -> None:
    """A suite without one would be registered and tested by nobody."""
    assert {system.suite.name for system in SYSTEMS.values()} == set(SUITES)


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", TRUTH)
@pytest.mark.parametrize("name", NAMES)
def test_activations_stay_within_their_stated_error(name: str, op: str) -> None:
    """Over the whole stated range, edges of pieces included, against the function a suite stands for."""
    f = SYSTEMS[name].functions[op]
    edges = np.array([-8, -4, -2.5, -1.95, 0, 1.95, 2.5, 3, 4])
    points = np.r_[np.linspace(-f.reach, f.reach, 1201), edges, edges - ULP, edges + ULP]
    x = np.round(np.clip(points, -f.reach, f.reach) / ULP) * ULP
    assert np.abs(run(name, program(name, op), x).values - truth(name, op, x)).max() <= f.error


@pytest.mark.parametrize("length", [1, 2, 17, 64, 300])
@pytest.mark.parametrize("name", NAMES)
def test_softmax_stays_within_its_stated_error(name: str, length: int) -> None:
    """Short and long rows, with and without a causal mask; what is masked is nothing, to the last bit."""
    rng = np.random.default_rng(length)
    rows = min(length, 40)
    spread = 1 if SYSTEMS[name].suite.reference else 3
    x = rng.normal(0, spread, (rows, length))
    for allowed in (None, np.tri(rows, length, length - rows, dtype=bool)):
        found = run(name, program(name, "softmax"), x, Public(allowed)).values
        assert np.abs(found - soft(name, x, allowed)).max() <= SYSTEMS[name].softmax_error
        assert np.abs(found.sum(1) - 1).max() < 0.02
        if allowed is not None and length > 1:
            assert not found[~allowed].any() or np.abs(found[~allowed]).max() <= 2 * ULP


@pytest.mark.parametrize("name", NAMES)
def test_norms_stay_within_their_stated_error(name: str) -> None:
    """Rows of other scales within the range calibration keeps them in."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(9, 80)) * np.exp(np.linspace(0, 1.4, 9))[:, None] + rng.normal(size=(9, 1))
    weight, bias = rng.normal(1, 0.2, 80), rng.normal(0, 0.2, 80)
    centred = x - x.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias
    found = run(name, program(name, "layer_norm"), x, weight, bias).values
    error = SYSTEMS[name].norm_error
    assert (np.abs(found - expected) <= error * np.abs(expected - bias) + 0.002).all()
    x = 2 * x
    expected = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * weight
    found = run(name, program(name, "rms_norm"), x, weight).values
    assert (np.abs(found - expected) <= error * np.abs(expected) + 0.002).all()


# -- costs and traces -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_costs_are_those_stated(name: str) -> None:
    """Rounds and bytes by the formulas of docs/baselines.md."""
    system = SYSTEMS[name]
    for op, f in system.functions.items():
        found = run(name, program(name, op), np.zeros(120), exact=False)
        assert (op, found.rounds, found.bytes) == (op, f.rounds, 120 * f.each)
    for rows, length in ((2, 2), (4, 33), (2, 64)):
        x = np.zeros((rows, length))
        found = run(name, program(name, "softmax"), x, Public(None), exact=False)
        if system.softmax is not None:
            costs = system.softmax.rounds(length), system.softmax.bytes(rows, length)
            assert (length, found.rounds, found.bytes) == (length, *costs)
        weight = np.zeros(length)
        norm = _norm(name)
        found = run(name, norm, x, weight, weight, exact=False)
        assert (found.rounds, found.bytes) == (
            system.norm.rounds(length),
            system.norm.bytes(rows, length),
        )


def _norm(name: str) -> Any:
    """LayerNorm of an input that needs no scaling: scaling down is a rescaling more where that costs a round."""

    async def layer_norm(s: Session, x: Any, weight: Any, bias: Any) -> Any:
        return await SYSTEMS[name].suite.layer_norm(s, x, weight, bias, exponent=0, epsilon=1e-5)

    return layer_norm


CAUSAL = np.tri(5, 9, 4, dtype=bool)
SMALL = {
    "relu": (np.linspace(-3, 3, 40),),
    "gelu": (np.linspace(-3, 3, 40),),
    "silu": (np.linspace(-3, 3, 40),),
    "softmax": (np.linspace(-2, 2, 45).reshape(5, 9), Public(CAUSAL)),
    "layer_norm": (np.linspace(-2, 2, 45).reshape(5, 9), np.ones(9), np.ones(9)),
    "rms_norm": (np.linspace(-2, 2, 45).reshape(5, 9), np.ones(9)),
}


@cache
def small(name: str, op: str) -> Any:
    """Return an exact run of an operation on a few numbers."""
    return run(name, program(name, op), *SMALL[op], seed=1)


@pytest.mark.parametrize("op", SMALL)
@pytest.mark.parametrize("name", NAMES)
def test_shapes_trace_as_values_do_and_runs_repeat(name: str, op: str) -> None:
    """Every record of replayed and walked shapes, of another seed and of other values is that of the exact run."""
    exact = small(name, op)
    shapes = [
        run(name, program(name, op), *SMALL[op], exact=False, replay=replay) for replay in (True, False)
    ]
    other = run(name, program(name, op), -2 * SMALL[op][0], *SMALL[op][1:], seed=2)
    again = run(name, program(name, op), *SMALL[op], seed=1)
    assert exact.records() == other.records() == shapes[0].records() == shapes[1].records()
    assert again.views == exact.views
    assert np.array_equal(again.raw, exact.raw)
    assert not any(a == b for a, b in zip(exact.views["server0"], other.views["server0"], strict=True) if a)
    assert exact.unused == 0, "dealt for a step the servers do not take"


@pytest.mark.parametrize("mode", ["on-demand", "streamed"])
@pytest.mark.parametrize("name", ["puma", "puma, native", "secformer"])
def test_every_kind_of_randomness_comes_in_every_dealer_mode(name: str, mode: Any) -> None:
    """Packed lanes, private products and sines are asked for and streamed as they are dealt beforehand."""
    for op in ("gelu", "layer_norm"):
        found = run(name, program(name, op), *SMALL[op], seed=1, dealing=Dealing(mode, 4096))
        assert np.array_equal(found.raw, small(name, op).raw)


# -- views ------------------------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What server 0 learns besides its shares: openings of words, and of narrow lanes."""
    seen: list[bytes] = []

    def watch(original: Any) -> Any:
        async def opening(self: Session, *shares: Any) -> Any:
            values = await original(self, *shares)
            if self.index == 0:
                seen.extend(value.tobytes() for value in values)
            return values

        return opening

    async def swapped(s: Session, width: int, *parts: Any) -> Any:
        theirs = await original_swap(s, width, *parts)
        if s.index == 0:
            seen.extend((a ^ b).astype(f"<u{width}").tobytes() for a, b in zip(parts, theirs, strict=True))
        return theirs

    original_swap = lanes.swap_lanes
    for method in ("open", "open_bits"):
        monkeypatch.setattr(Session, method, watch(getattr(Session, method)))
    for module in (lanes, truncation):
        monkeypatch.setattr(module, "swap_lanes", swapped)
    return seen


def looks(name: str, op: str, value: float, opened: list[bytes], seeds: range) -> dict[str, np.ndarray]:
    """Return the bytes each server received and server 0 opened, over runs with one number for all inputs."""
    opened.clear()
    first, *rest = SMALL[op]
    runs = [run(name, program(name, op), np.full(first.shape, value), *rest, seed=seed) for seed in seeds]
    views = {
        server: b"".join(part for each in runs for part in each.views[server])
        for server in ("server0", "server1")
    } | {"opened": b"".join(opened)}
    return {view: np.frombuffer(data, np.uint8) for view, data in views.items()}


@pytest.mark.parametrize("op", ["relu", "gelu", "softmax", "layer_norm"])
@pytest.mark.parametrize("name", NAMES)
def test_views_are_uniform_and_say_nothing_of_the_input(name: str, op: str, opened: list[bytes]) -> None:
    seen = [looks(name, op, value, opened, range(3 * i, 3 * i + 3)) for i, value in enumerate((0.0, -1.75))]
    for view in ("server0", "server1", "opened"):
        first, second = (each[view] for each in seen)
        assert len(first) == len(second) > 900
        assert min(even_bytes(first), even_bytes(second), same_bytes(first, second)) > ALPHA, view


def test_a_suite_that_leaks_would_be_caught(opened: list[bytes]) -> None:
    """A bit swapped without a mask shows in what is opened, though every share alone looks random."""

    async def leaky(s: Session, x: Any) -> Any:
        await lanes.swap_lanes(s, 1, x)
        return x

    runs = [run_protocol(leaky, np.zeros(400), seed=seed) for seed in range(3)]
    received = np.frombuffer(b"".join(part for each in runs for part in each.views["server0"]), np.uint8)
    assert even_bytes(received) > ALPHA
    assert even_bytes(np.frombuffer(b"".join(opened), np.uint8)) < ALPHA
