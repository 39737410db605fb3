"""Sessions: one program at two servers and the dealer meets the same positions, in fork and in sequence."""

import asyncio

import numpy as np
import pytest

from comet_sim.actors import DeviceProfile
from comet_sim.errors import CometSimError
from comet_sim.kernel import DeadlockError
from comet_sim.mpc import beaver, compare, functions, maximum
from comet_sim.mpc.correlated import SQUARE, layout
from comet_sim.mpc.dealing import BUNDLE_WORDS, DealingSession
from comet_sim.mpc.functions import Iterations
from comet_sim.mpc.session import Session
from comet_sim.mpc.supply import Bundle, Stock
from comet_sim.mpc.tensor import ExactOps, ShapeOps
from comet_sim.mpc.transcript import replayable
from comet_sim.testing import Bits, Integers, Public, run_protocol

CRYPTEN = Iterations()
LONGER = Iterations(exp=9, reciprocal=11, inverse_sqrt=6)
IDEAL = DeviceProfile("none", 0, 0, 0, "test")
X = np.linspace(-4, 4, 35).reshape(5, 7)


async def softmax(s, x, allowed, n):
    return await functions.softmax(s, x, allowed, n)


async def layer_norm(s, x, exponent, n):
    return await functions.layer_norm(s, x, x[0], x[1], exponent=exponent, epsilon=1e-5, n=n)


async def gram(s, x):
    return s.truncate(await beaver.matmul(s, x, x.swapaxes(0, 1)))


async def side_by_side(s, x):
    """Three products in one round."""
    with s.scope("three"):
        return tuple(await s.gather(*[lambda child: gram(child, x)] * 3))


async def nested(s, x):
    """Forks of unequal length within forks, work before, between and after."""

    async def branch(child, times):
        y = x
        for _ in range(times):
            y = child.truncate(await beaver.square(child, y))
        if times:
            y, *_ = await child.gather(
                lambda low: beaver.multiply(low, y, y), lambda low: compare.less_than_zero(low, x)
            )
        return y

    await beaver.square(s, x)
    parts = await s.gather(*[lambda child, n=n: branch(child, n) for n in (2, 0, 1)])
    total = parts[0] + parts[1] + parts[2]
    more = await s.gather(lambda child: gram(child, total))
    return await compare.relu(s, more[0])


OPS = {
    "multiply": (beaver.multiply, X, X[0]),
    "square": (beaver.square, X),
    "matmul": (beaver.matmul, X, X.T),
    "batched matmul": (beaver.matmul, np.stack([X, X]), np.stack([X.T, X.T])),
    "and": (beaver.bit_and, Bits(np.arange(9)), Bits(np.arange(9))),
    "b2a": (beaver.bits_to_arithmetic, Bits(np.arange(9) & 1)),
    "a2b": (compare.arithmetic_to_bits, X),
    "ltz": (compare.less_than_zero, X),
    "equal": (compare.equal, X, -X),
    "where": (compare.where, Integers((X > 0).astype(int)), X, -X),
    "relu": (compare.relu, X),
    "maximum": (maximum.maximum, X),
    "maximum of one": (maximum.maximum, X[:, :1]),
    "exp": (functions.exp, -abs(X), Public(CRYPTEN)),
    "reciprocal": (functions.reciprocal, abs(X) + 1, Public(CRYPTEN)),
    "inverse square root": (functions.inverse_sqrt, abs(X) + 1, Public(LONGER)),
    "softmax": (softmax, X, Public(None), Public(CRYPTEN)),
    "softmax, causal": (softmax, np.stack([X, X]), Public(np.tri(5, 7, 2, dtype=bool)), Public(LONGER)),
    "softmax of one": (softmax, X[:, :1], Public(None), Public(CRYPTEN)),
    "layer norm": (layer_norm, X, Public(4), Public(CRYPTEN)),
    "layer norm, scaled down": (layer_norm, X, Public(-2), Public(CRYPTEN)),
    "side by side": (side_by_side, X),
    "nested forks": (nested, X),
}


@pytest.fixture
def positions(monkeypatch):
    """Where each party (0, 1, and 2 for the dealer) takes or deals randomness: name, path, kind, shapes."""
    seen: list[list[tuple[object, ...]]] = [[], [], []]

    def watch(original):
        def correlated(self, kind, *shapes):
            path = self.world.names.text(self.path)
            seen[self.index].append((self.id, self.step, path, kind.name, shapes))
            return original(self, kind, *shapes)

        return correlated

    for session in (Session, DealingSession):
        monkeypatch.setattr(session, "correlated", watch(session.correlated))
    return seen


@pytest.mark.parametrize("name", OPS)
def test_the_dealers_walk_meets_the_servers_positions(name, positions):
    """Same names, paths, kinds and shapes at all three: otherwise a server would use another op's triple."""
    run_protocol(*OPS[name])
    server0, server1, dealer = (sorted(each) for each in positions)
    assert server0 == server1 == dealer
    assert len({(strand, step) for strand, step, *_ in dealer}) == len(dealer), "a position was dealt twice"


@pytest.mark.parametrize("name", OPS)
def test_a_shape_run_has_the_exact_runs_records(name):
    """Every field of every record; replaying recorded rounds or walking each protocol makes no difference."""
    exact, replayed, walked = (
        run_protocol(*OPS[name], exact=exact, replay=replay)
        for exact, replay in ((True, False), (False, True), (False, False))
    )
    assert exact.records() == walked.records()
    assert exact.records() == replayed.records()
    assert exact.trace.digest == replayed.trace.digest
    shapes = [out.shape if hasattr(out, "shape") else [each.shape for each in out] for out in walked.outputs]
    real = [out.shape if hasattr(out, "shape") else [each.shape for each in out] for out in exact.outputs]
    assert shapes == real


def test_three_products_side_by_side_are_one_round():
    run = run_protocol(side_by_side, X, device=IDEAL)
    alone = run_protocol(gram, X, device=IDEAL)
    assert (run.rounds, alone.rounds) == (1, 1)
    assert run.bytes == 3 * alone.bytes
    assert len(run.requests) == 3
    assert {run.names.text(message.path) for message in run.online} == {"three"}
    for values in run.values:
        np.testing.assert_allclose(values, X @ X.T, atol=2e-3)
    # One round trip: the other two only wait for the link.
    assert alone.online_ns < run.online_ns < 2 * alone.online_ns


def test_forked_results_are_those_of_a_sequence():
    async def sequence(s, x):
        return await gram(s, x), await compare.relu(s, x)

    async def forked(s, x):
        return tuple(await s.gather(lambda child: gram(child, x), lambda child: compare.relu(child, x)))

    one, two = run_protocol(sequence, X), run_protocol(forked, X)
    assert (one.rounds, two.rounds) == (10, 9)
    assert one.bytes == two.bytes
    for a, b in zip(one.values, two.values, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_nested_forks_give_the_right_numbers():
    values = np.array([[0.5, -0.25], [1.0, 2.0]])

    async def program(s, x):
        async def power(child):
            square = child.truncate(await beaver.square(child, x))
            both = await child.gather(*[lambda low: beaver.multiply(low, square, square)] * 2)
            return child.truncate(both[0]) + child.truncate(both[1])

        first, second = await s.gather(power, power)
        return first + second

    run = run_protocol(program, values)
    np.testing.assert_allclose(run.values, 4 * values**4, atol=1e-3)
    assert (run.rounds, len(run.requests)) == (2, 6)


def test_corrections_travel_in_bundles():
    """Several messages of the dealer, all before the online phase, and every element is used once."""
    count = BUNDLE_WORDS // 2 + 1

    async def program(s, x):
        for _ in range(4):
            x = await beaver.square(s, x)
        return x

    run = run_protocol(program, Integers(np.full(count, 3)))
    offline = sorted(message for message in run.messages if message not in run.online)
    assert [message.payload for message in offline] == [8 * count] * 4, "two would not fit one bundle"
    assert all(message.delivered <= run.online[0].created for message in offline)
    assert {request.message for request in run.requests} == {message.id for message in offline}
    assert run.corrections == 4 * count
    assert (run.raw == 3**16).all()


def test_randomness_serves_once():
    """Taking a position again, or one that was never dealt, is an error and not a wrong number."""

    async def again(s, x):
        step = s.step
        await s.correlated(beaver.SQUARE, x.shape).corrected()
        if s.index == 1:
            s.step = step
            await s.correlated(beaver.SQUARE, x.shape).corrected()

    with pytest.raises(ExceptionGroup) as caught:
        run_protocol(again, np.ones(3))
    (error,) = caught.value.exceptions
    assert isinstance(error, CometSimError)
    assert str(error) == "no correlated randomness was dealt for program position (0, 0) of shape (3,)"


async def test_stock_counts_what_is_held():
    """Peak and remainder go to the summary."""
    for ops in (ExactOps(), ShapeOps()):
        stock = Stock(ops)
        buffer = ops.pack((ops.zeros((4,)),))
        for number in range(3):
            stock.add(Bundle(buffer, [((0, number), (4,))], last=number == 2))
        await stock.take(None, (0, 1), layout(SQUARE, (4,)))
        assert (stock.elements, stock.peak_elements) == (8, 12)


def test_servers_that_disagree_on_the_program_wait_for_ever():
    async def program(s, x):
        await beaver.square(s, x)
        if s.index != 1:
            with s.scope("extra"):
                await s.open(x)

    with pytest.raises(DeadlockError, match="a message from server1 for op extra"):
        run_protocol(program, np.ones(3))


@pytest.mark.parametrize("exact", [True, False])
def test_servers_that_disagree_on_a_shape_are_told(exact):
    async def program(s, x):
        await s.open(x if s.index == 0 else x[:-1])

    with pytest.raises(ExceptionGroup) as caught:
        run_protocol(program, np.ones(3), exact=exact)
    assert isinstance(caught.value.exceptions[0], ValueError)


def test_a_replayable_protocol_must_not_fork_or_wait_for_others():
    """Strands have rounds of their own, and other parties' messages come when they like."""

    @replayable
    async def forks(s, x):
        return await gram(s.fork(), x)

    @replayable
    async def gathers(s, x):
        return (await s.gather(lambda child: gram(child, x)))[0]

    @replayable
    async def sleeps(s, x):
        await asyncio.sleep(0)
        return x

    for protocol, complaint in (
        (forks, "must not fork"),
        (gathers, "must not fork"),
        (sleeps, "it is not replayable"),
    ):
        with pytest.raises(ExceptionGroup) as caught:
            run_protocol(protocol, X, exact=False)
        assert complaint in str(caught.value.exceptions[0])


def test_transcripts_tell_masks_and_settings_apart():
    """Two calls with the same shapes but another public mask, scope or setting are different transcripts."""

    async def program(s, x, causal):
        first = await functions.softmax(s, x, None, CRYPTEN)
        with s.scope("again"):
            await functions.softmax(s, first, causal, CRYPTEN)
            await functions.softmax(s, first, causal, LONGER)
        return await functions.softmax(s, first, causal, CRYPTEN)

    causal = Public(np.tri(5, 7, 2, dtype=bool))
    replayed = run_protocol(program, X, causal, exact=False)
    walked = run_protocol(program, X, causal, exact=False, replay=False)
    assert replayed.records() == walked.records()
    assert run_protocol(program, X, causal).records() == walked.records()


def test_transcripts_may_depend_on_what_a_public_array_holds():
    """Two masks of one shape: the number of entries opened follows the mask, so the transcript must."""

    @replayable
    async def open_some(s, x, keep):
        return (await s.open(x[: int(keep.sum())]))[0]

    async def program(s, x, few, many):
        return await open_some(s, x, few), await open_some(s, x, many)

    masks = Public(np.array([1, 0, 0])), Public(np.array([1, 1, 1]))
    shape, exact = (run_protocol(program, np.ones(3), *masks, exact=exact) for exact in (False, True))
    assert [message.payload for message in shape.online] == [8, 8, 24, 24]
    assert shape.records() == exact.records()
