"""What a server sees tells nothing: it is uniform, fresh, and the same whatever the input is.

Everything a server receives is checked, and everything it *opens* (what it receives joined with its own
share), because a share alone is uniform however careless a protocol is. Seeds are fixed, so the tests either
always pass or never; protocols that leak on purpose show that they would be caught.
"""

import threading

import numpy as np
import pytest
from object_walk import holds, reachable
from views import same, uniform

from comet_sim.actors import Party, World
from comet_sim.mpc import beaver, compare, functions, ring
from comet_sim.mpc.functions import Iterations
from comet_sim.mpc.session import Session
from comet_sim.mpc.tensor import ExactOps
from comet_sim.testing import Bits, Integers, ProtocolRun, Public, run_protocol

# Chance that a sound protocol fails one comparison; some hundred comparisons are made, with fixed seeds.
ALPHA = 1e-6
RUNS = 12
DEALER = 2


async def softmax(s, x):
    return await functions.softmax(s, x, None, Iterations())


async def masked_softmax(s, x):
    return await functions.softmax(s, x, np.tri(*x.shape, dtype=bool), Iterations())


async def layer_norm(s, x):
    weight = x[0]
    return await functions.layer_norm(s, x, weight, weight, exponent=2, epsilon=1e-5, n=Iterations())


async def product(s, x):
    return await beaver.matmul(s, x, x.swapaxes(0, 1))


async def multiply(s, x):
    return await beaver.multiply(s, x, x)


PROTOCOLS = {
    "multiply": multiply,
    "square": beaver.square,
    "matmul": product,
    "a2b": compare.arithmetic_to_bits,
    "ltz": compare.less_than_zero,
    "relu": compare.relu,
    "softmax": softmax,
    "masked softmax": masked_softmax,
    "layer norm": layer_norm,
}
SHAPE = (8, 8)
INPUTS = {
    "zero": np.zeros(SHAPE),
    "constant": np.full(SHAPE, -3.0),
    "spread": np.linspace(-9.0, 9.0, 64).reshape(SHAPE),
}


@pytest.fixture
def opened(monkeypatch):
    """Everything server 0 opens, in order: what protocols themselves learn besides their shares."""
    seen: list[np.ndarray] = []
    for name in ("open", "open_bits"):

        def watch(original):
            async def opening(self, *shares):
                values = await original(self, *shares)
                if self.index == 0:
                    seen.extend(value.reshape(-1) for value in values)
                return values

            return opening

        monkeypatch.setattr(Session, name, watch(getattr(Session, name)))
    return seen


def words(run: ProtocolRun, server: str) -> np.ndarray:
    """Every word a server received, (n,) uint64."""
    return np.frombuffer(b"".join(run.views[server]), "<u8")


def seen_in(protocol, values, opened, seeds) -> dict[str, np.ndarray]:
    """Words received by each server and opened, over runs with different seeds."""
    opened.clear()
    runs = [run_protocol(protocol, values, seed=seed) for seed in seeds]
    seen = {server: np.concatenate([words(run, server) for run in runs]) for server in ("server0", "server1")}
    return seen | {"opened": np.concatenate(opened).view(np.uint64)}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_views_are_uniform_fresh_and_independent_of_the_input(name, opened):
    by_input = {
        label: seen_in(PROTOCOLS[name], values, opened, range(i * RUNS, (i + 1) * RUNS))
        for i, (label, values) in enumerate(INPUTS.items())
    }
    for view in ("server0", "server1", "opened"):
        samples = [seen[view] for seen in by_input.values()]
        for sample in samples:
            assert len(sample) >= 64 * RUNS
            assert uniform(sample) > ALPHA, view
            # 64-bit words repeat by chance once in 10^8 such samples; a mask used twice repeats at once,
            # because the inputs repeat.
            assert len(np.unique(sample)) == len(sample), view
        assert same(samples[0], samples[1]) > ALPHA, view
        assert same(samples[0], samples[2]) > ALPHA, view


async def unmasked(s, x):
    """Opens the input itself."""
    return (await s.open(x))[0]


async def short_mask(s, x):
    """Masks the upper half only."""
    (a,) = s.correlated(beaver.SQUARE, x.shape).seeded
    return (await s.open(x - ((a >> 32) << 32)))[0]


async def mask_twice(s, x):
    """Opens two values under one mask."""
    (a,) = s.correlated(beaver.SQUARE, x.shape).seeded
    await s.open(x - a)
    return (await s.open(x + x - x - a))[0]


@pytest.mark.parametrize("leak", [unmasked, short_mask, mask_twice])
def test_a_leaking_protocol_would_be_caught(leak, opened):
    """The comparisons above have the power to see a leak in what a server opens, though shares look random."""
    zero = seen_in(leak, INPUTS["zero"], opened, range(RUNS))
    other = seen_in(leak, INPUTS["constant"], opened, range(RUNS, 2 * RUNS))
    if leak is unmasked:
        assert uniform(zero["server0"]) > ALPHA, (
            "the share alone looks random: this is why openings are checked"
        )
    fresh = all(len(np.unique(seen["opened"])) == len(seen["opened"]) for seen in (zero, other))
    p = min(uniform(other["opened"]), same(zero["opened"], other["opened"]))
    assert not fresh or p <= ALPHA


@pytest.mark.parametrize("name", ["multiply", "ltz", "softmax"])
def test_another_seed_gives_other_views_but_the_same_run(name):
    values = INPUTS["spread"]
    first, again, other = (run_protocol(PROTOCOLS[name], values, seed=seed) for seed in (1, 1, 2))
    assert first.views == again.views
    assert first.records() == other.records(), "a record that follows a value would be a leak of its own"
    for server in first.views:
        same_words = words(first, server) == words(other, server)
        assert not same_words.any()
    np.testing.assert_allclose(first.values, other.values, atol=2e-3)


def test_servers_and_dealer_share_no_stream():
    """Masks of both servers, the dealer's corrections and private bits come from different streams."""

    async def program(s, x):
        s.random_bits((64,))
        piece = s.correlated(beaver.MULTIPLY, x.shape, x.shape)
        return (*piece.seeded, await piece.corrected())

    run = run_protocol(program, np.zeros(64), seed=5)
    parts = [part.view(np.uint64) for output in run.outputs for part in output]
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)


# -- objects ---------------------------------------------------------------------------------------------

SECRETS = (1234.5625, -777.03125, 4242.1875)


@pytest.mark.parametrize("name", ["multiply", "softmax", "relu"])
def test_a_server_holds_no_plain_value(name):
    """Neither before, in the middle nor at the end: nothing a server's objects lead to holds an input."""
    secrets = ring.encode(np.array(SECRETS))
    found: list[object] = []
    counted: list[int] = []

    async def program(s, x):
        if s.index == DEALER:
            await PROTOCOLS[name](s, x)
            return None

        def look(session, *more):
            others = [party for party in s.world.parties.values() if party is not s.party]
            # The observer is the test itself, and a frame that waits belongs to the loop.
            apart = (*others, s.world.observer, s.world.loop, s.world.network)
            things = [thing for root in (session, *more) for thing in reachable(root, apart)]
            counted.append(sum(isinstance(thing, np.ndarray) for thing in things))
            found.extend(holds(things, secrets))

        s.party.vault["input"] = x
        look(s, x)
        original = s.ops.pack
        ops = ExactOps()
        ops.pack = lambda parts: look(s, parts) or original(parts)
        s.ops = ops
        out = await PROTOCOLS[name](s, x)
        look(s, out)
        return x

    run = run_protocol(program, np.tile(SECRETS, (2, 1)), seed=3)
    np.testing.assert_array_equal(run.values, np.tile(SECRETS, (2, 1)))
    assert not found
    assert len(counted) > 4 and min(counted) > 0, "the walk must reach the shares, or it proves nothing"


def test_the_walk_would_find_a_plain_value():
    secrets = ring.encode(np.array(SECRETS))
    hidden = {"a": [(np.zeros(3), {"deep": np.concatenate([[5], secrets]).reshape(2, 2)[1:]})]}
    assert holds(reachable(hidden, ()), secrets)
    assert holds(reachable([{"k": b"pad" + secrets[1].tobytes()}], ()), secrets)
    assert holds(reachable((SECRETS[0],), ()), secrets)
    assert not holds(reachable(hidden, ()), ring.encode(np.array([3.0])))


def test_servers_share_no_secret_through_the_world():
    """What both can reach (clock, names, network) holds no array at all."""

    async def program(s, x):
        out = await beaver.multiply(s, x, x)
        parties = tuple(s.world.parties.values())
        assert isinstance(s.world, World) and all(isinstance(party, Party) for party in parties)
        things = reachable(s.world, (*parties, s.world.observer, s.world.loop, s.world.network))
        assert not [thing for thing in things if isinstance(thing, np.ndarray)]
        return out

    run_protocol(program, np.ones(3))


# -- runs beside each other ------------------------------------------------------------------------------


def test_interleaved_runs_do_not_touch_each_other(monkeypatch):
    """Two simulations in two threads that take turns at every message: nothing of one shows in the other."""
    inputs = [(INPUTS["spread"], 1), (-2 * INPUTS["spread"], 2)]
    alone = [run_protocol(softmax, values, seed=seed) for values, seed in inputs]

    barrier = threading.Barrier(2, timeout=30)
    turns = [0, 0]
    original = ProtocolRun.message

    def message(self, record):
        turns[threading.current_thread().name == "second"] += 1
        barrier.wait()
        original(self, record)

    monkeypatch.setattr(ProtocolRun, "message", message)
    together: list[ProtocolRun | None] = [None, None]

    def play(number):
        values, seed = inputs[number]
        together[number] = run_protocol(softmax, values, seed=seed)

    threads = [
        threading.Thread(target=play, args=(n,), name=name) for n, name in enumerate(("first", "second"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert turns == [len(run.messages) for run in alone]
    for before, after in zip(alone, together, strict=True):
        assert after is not None
        assert after.records() == before.records()
        assert after.views == before.views
        np.testing.assert_array_equal(after.raw, before.raw)


def test_a_run_inside_another_does_not_touch_it():
    """An observer of one run may start another: loops, tasks and parties stay apart."""
    alone = run_protocol(compare.relu, Integers(np.arange(-4, 4)), seed=1)

    async def program(s, x):
        out = await compare.relu(s, x)
        with s.scope("inner"):
            inner = run_protocol(beaver.bit_and, Bits([12]), Bits([10]), seed=s.index)
        assert inner.xor.tolist() == [8]
        return out

    outer = run_protocol(program, Integers(np.arange(-4, 4)), seed=1)
    assert outer.records() == alone.records()
    assert outer.views == alone.views


def test_public_arguments_reach_everyone_as_they_are():
    async def program(s, x, mask):
        assert mask is keep
        return s.ops.select(x, mask, 0)

    keep = np.array([True, False])
    assert run_protocol(program, [1.5, 2.5], Public(keep)).values.tolist() == [1.5, 0.0]
