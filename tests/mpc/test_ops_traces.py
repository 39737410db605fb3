"""Operations on shapes leave the records of real ones, cost what their variant says, and open nothing but noise."""

import numpy as np
import pytest
from scipy import stats

from comet_sim.mpc import activations, compare, elementary, functions, maximum
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import Iterations, Variants
from comet_sim.testing import Integers, Public, run_protocol

STEPS = Public(Iterations())
LONGER = Public(Iterations(exp=9, inverse_sqrt=6, sigmoid=4, log=3, log_order=5, trig=6, erf=4, chebyshev=10))
LEAN = Variants(max="tree", argmax=False, adder="single-open", where="one-product")
CRYPTEN = Public(Variants())
X = np.linspace(-1.9, 1.9, 35).reshape(5, 7)
POSITIVE = abs(X) + 0.5
ALPHA = 1e-6  # chance that a sound protocol fails one of some fifty comparisons; seeds are fixed


async def rms_norm(s, x, exponent, n):
    return await functions.rms_norm(s, x, x[0], exponent=exponent, epsilon=1e-5, n=n)


OPS = {
    "abs": (compare.absolute, X, CRYPTEN),
    "sign": (compare.sign, X, CRYPTEN),
    "hardtanh": (compare.hardtanh, X, CRYPTEN),
    "relu, lean": (compare.relu, X, Public(LEAN)),
    "where, lean": (compare.where, Integers((X > 0).astype(int)), X, -X, Public(LEAN)),
    "a2b, lean": (compare.arithmetic_to_bits, X, Public(LEAN)),
    "rand": (maximum.random_fraction, Public((3, 4))),
    **{
        f"{name} {way}": (protocol, X, Public(Variants(max=way)))
        for name, protocol in (("max", maximum.maximum), ("argmax", maximum.argmax))
        for way in ("pairwise", "log_reduction", "double_log_reduction", "accelerated_cascade", "tree")
    },
    "max, lean": (maximum.maximum, X, Public(LEAN)),
    "reciprocal": (elementary.signed_reciprocal, POSITIVE, STEPS, CRYPTEN),
    "divide": (elementary.divide, X, POSITIVE, STEPS, CRYPTEN),
    "square root": (elementary.square_root, POSITIVE, STEPS),
    "cosine and sine": (elementary.cos_sin, X, STEPS),
    "cosine and sine, short": (elementary.cos_sin, X, LONGER),
    "log": (functions.log, POSITIVE, STEPS),
    "log, other order": (functions.log, POSITIVE, LONGER),
    "log-softmax": (functions.log_softmax, X, STEPS, CRYPTEN),
    "log-softmax of a long row": (functions.log_softmax, np.zeros((1, 70)), STEPS, Public(LEAN)),
    "softmax, lean": (functions.softmax, X, Public(np.tri(5, 7, 2, dtype=bool)), STEPS, Public(LEAN)),
    "rms norm": (rms_norm, X, Public(1), STEPS),
    "rms norm, scaled down": (rms_norm, X, Public(-2), LONGER),
    "sigmoid": (activations.sigmoid, X, STEPS, CRYPTEN),
    "sigmoid, lean": (activations.sigmoid, X, LONGER, Public(LEAN)),
    "sigmoid, chebyshev": (activations.sigmoid, X, STEPS, Public(Variants(tanh="chebyshev"))),
    "tanh": (activations.tanh, X, STEPS, CRYPTEN),
    "tanh, chebyshev": (activations.tanh, X, STEPS, Public(Variants(tanh="chebyshev"))),
    "tanh, chebyshev 10": (activations.tanh, X, LONGER, Public(Variants(tanh="chebyshev"))),
    "erf": (activations.erf, X, STEPS, CRYPTEN),
    "erf, taylor": (activations.erf, X, STEPS, Public(Variants(erf="taylor"))),
    "erf, short taylor": (activations.erf, X, LONGER, Public(Variants(erf="taylor"))),
    "gelu": (activations.gelu, X, STEPS, CRYPTEN),
    "gelu, taylor": (activations.gelu, X, STEPS, Public(Variants(erf="taylor"))),
    "gelu by tanh": (activations.gelu_tanh, X, STEPS, CRYPTEN),
    "silu": (activations.silu, X, STEPS, CRYPTEN),
}


def shapes_of(run):
    """Shapes of the outputs of both servers."""
    return [
        [part.shape for part in (output if isinstance(output, tuple) else (output,))]
        for output in run.outputs
    ]


@pytest.mark.parametrize("name", OPS)
def test_a_shape_run_has_the_exact_runs_records(name):
    """Every field of every record and the outputs' shapes; replayed transcripts and full walks alike.

    A result reshaped on one side only, or work charged by value, would part the two.
    """
    exact = run_protocol(*OPS[name])
    walked, replayed = (run_protocol(*OPS[name], exact=False, replay=replay) for replay in (False, True))
    assert exact.records() == walked.records()
    assert exact.records() == replayed.records()
    assert shapes_of(exact) == shapes_of(walked) == shapes_of(replayed)
    assert exact.unused == 0, "the dealer walked through more than the servers did"


# -- what a variant costs ---------------------------------------------------------------------------------

N = 60
ONES = np.ones(N)
SINGLE = Variants(adder="single-open")
ONE = Variants(where="one-product")

COSTS = [
    ("A2B", compare.arithmetic_to_bits, (), SINGLE, 7, 152),
    ("ltz", compare.less_than_zero, (), SINGLE, 8, 160),
    ("relu", compare.relu, (), LEAN, 9, 176),
    ("abs", compare.absolute, (), SINGLE, 9, 176),
    ("hardtanh", compare.hardtanh, (), SINGLE, 9, 352),
    ("sigmoid, one product", activations.sigmoid, (STEPS,), ONE, 22, 360),
    ("sigmoid, lean", activations.sigmoid, (STEPS,), LEAN, 22, 304),
    ("silu", activations.silu, (STEPS,), Variants(), 24, 392),
    ("reciprocal, single open", elementary.signed_reciprocal, (STEPS,), SINGLE, 38, 496),
]


@pytest.mark.parametrize(("name", "protocol", "more", "variants", "rounds", "each"), COSTS)
def test_a_variant_costs_what_it_says(name, protocol, more, variants, rounds, each):
    """Rounds, and bytes an element: a variant that falls back to CrypTen's way would cost more."""
    run = run_protocol(protocol, ONES, *more, Public(variants), exact=False)
    assert (run.rounds, run.bytes) == (rounds, each * N)


@pytest.mark.parametrize("length", [1, 2, 3, 16, 17, 128, 129])
def test_a_tree_maximum_has_one_comparison_less_than_entries(length):
    """9 rounds a halving, and 176 bytes a comparison: the published counts of a tournament."""
    run = run_protocol(maximum.maximum, np.zeros((3, length)), Public(LEAN), exact=False)
    assert run.rounds == 9 * (length - 1).bit_length()
    assert run.bytes == 176 * 3 * (length - 1)


def test_leaving_out_the_argmax_saves_exactly_the_argmax():
    """104rL + 144r + 216rL bytes and 17 rounds, whatever the way; all pairs never compute it."""
    rows, length = 3, 20
    for way in ("log_reduction", "double_log_reduction", "accelerated_cascade", "tree"):
        full, short = (
            run_protocol(
                maximum.maximum, np.zeros((rows, length)), Public(Variants(max=way, argmax=flag)), exact=False
            )
            for flag in (True, False)
        )
        assert full.rounds - short.rounds == 17
        assert full.bytes - short.bytes == 144 * rows + 320 * rows * length


# -- what is opened ---------------------------------------------------------------------------------------

QUIET = {
    name: OPS[name]
    for name in (
        "abs", "hardtanh", "relu, lean", "a2b, lean", "max double_log_reduction", "max, lean", "argmax tree",
        "divide", "square root", "cosine and sine", "log", "log-softmax", "softmax, lean", "rms norm", "sigmoid",
        "tanh, chebyshev", "erf", "erf, taylor", "gelu", "gelu by tanh", "silu",
    )
}  # fmt: skip


@pytest.fixture
def opened(monkeypatch):
    """Everything server 0 opens: what it learns besides its shares."""
    seen: list[np.ndarray] = []

    def watch(original):
        async def opening(self, *shares):
            values = await original(self, *shares)
            if self.index == 0:
                seen.extend(value.reshape(-1) for value in values)
            return values

        return opening

    for name in ("open", "open_bits"):
        monkeypatch.setattr(Session, name, watch(getattr(Session, name)))
    return seen


@pytest.mark.parametrize("name", QUIET)
def test_openings_are_fresh_noise_and_the_run_does_not_depend_on_values(name, opened):
    """Uniform in every byte and no word twice; the same records whatever the input.

    An operand opened once for two products must have a mask of its own, or words repeat.
    """
    protocol, first, *rest = QUIET[name]
    runs = [run_protocol(protocol, values, *rest, seed=7) for values in (np.full(first.shape, 0.75), first)]
    assert runs[0].records() == runs[1].records()
    opened.clear()
    for seed in range(4):
        run_protocol(protocol, np.full(first.shape, 0.75), *rest, seed=seed)
    words = np.concatenate(opened).view(np.uint64)
    assert len(words) > 500
    assert len(np.unique(words)) == len(words)
    for column in words.view(np.uint8).reshape(-1, 8).T:
        assert stats.chisquare(np.bincount(column, minlength=256)).pvalue > ALPHA
