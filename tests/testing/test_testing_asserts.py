"""Asserts must pass on what a run did, fail on anything else, and then show where to look."""

import numpy as np
import pytest

from comet_sim.actors import DeviceProfile
from comet_sim.errors import InputError
from comet_sim.mpc import beaver, compare
from comet_sim.network import LinkConfig, Topology
from comet_sim.scenario import Scenario, WorkloadSpec
from comet_sim.simulation import simulate
from comet_sim.testing import assert_bytes, assert_reveals, assert_rounds, assert_time, run_protocol

X = np.linspace(-1, 1, 10)
PARTIES = ("server0", "server1", "dealer")
DELAY = 1_000
IDEAL = DeviceProfile("none", 0, 0, 0, "test")


async def program(s, x):
    """Two layers: ReLU (9 rounds, 232n bytes) and a square (1 round, 8n bytes) each."""
    for layer in range(2):
        with s.scope(f"layer{layer}"):
            with s.scope("relu"):
                x = await compare.relu(s, x)
            with s.scope("square"):
                x = s.truncate(await beaver.square(s, x))
    if s.index == 0:
        s.reveal("server0,server1", "result", "a test", x.size)
        s.reveal("user", "result", "a test", 3)
        s.reveal("user", "result", "another", 4)
    return x


async def nothing(s, x):
    return x + x


@pytest.fixture(scope="module")
def run():
    link = LinkConfig(rate=None, delay=DELAY)
    topology = Topology(PARTIES, {(a, b): link for a in PARTIES for b in PARTIES if a != b})
    return run_protocol(program, X, topology=topology, device=IDEAL)


def test_rounds(run):
    assert assert_rounds(run, exactly=20) == 20
    assert assert_rounds(run, op="layer0", exactly=10) == 10
    assert assert_rounds(run, op="layer*/relu", at_most=18) == 18
    assert assert_rounds(run, op="*/relu/ltz", exactly=16) == 16
    assert_rounds(run.trace, op="layer1/square", at_most=3)


def test_bytes(run):
    assert assert_bytes(run, exactly=2 * 240 * 10) == 4800
    assert assert_bytes(run, op="layer*/square", exactly=160, src="server1", dst="server0") == 160
    assert assert_bytes(run, phase="offline", src="dealer", exactly=2 * 16 * 10 * 8) == 2560
    assert assert_bytes(run, phase="offline", exactly=0) == 0, "the servers send nothing offline"


def test_time(run):
    """Every round is one delay, and layers follow each other at once."""
    assert assert_time(run, exactly=20 * DELAY) == 20 * DELAY
    assert assert_time(run, op="layer*/relu", exactly=18 * DELAY) == 18 * DELAY
    assert_time(run, op="layer0", at_most=10 * DELAY)


def test_time_counts_local_work():
    slow = DeviceProfile("slow", 0, 0, 250, "test")
    link = LinkConfig(rate=None, delay=DELAY)
    topology = Topology(PARTIES, {(a, b): link for a in PARTIES for b in PARTIES if a != b})

    async def one(s, x):
        with s.scope("square"):
            return await beaver.square(s, x)

    run = run_protocol(one, X, topology=topology, device=slow)
    assert assert_time(run, op="square", exactly=run.online_ns) > DELAY


def test_reveals(run):
    assert_reveals(run, {("result", "server0,server1"): 10, ("result", "user"): 7})
    assert_reveals(run, {("result", "server0,server1"): None, ("result", "user"): None})


@pytest.mark.parametrize(
    ("expected", "complaint"),
    [
        ({("result", "user"): 7}, "result to server0,server1: expected nothing, found 10"),
        (
            {("result", "server0,server1"): 10, ("result", "user"): 8},
            "result to user: expected 8, found 7",
        ),
        (
            {("result", "server0,server1"): 10, ("result", "user"): 7, ("logits", "user"): None},
            "logits to user: expected any number, found nothing",
        ),
    ],
)
def test_a_failing_ledger_is_shown(run, expected, complaint):
    with pytest.raises(AssertionError) as caught:
        assert_reveals(run, expected)
    lines = str(caught.value).splitlines()
    assert complaint in lines
    assert "result to user: 3 elements in 1 (a test)" in lines


def test_a_failure_shows_the_rows_in_question(run):
    with pytest.raises(AssertionError) as caught:
        assert_rounds(run, op="layer1/square", exactly=2)
    first, head, row = str(caught.value).splitlines()
    assert first == "op layer1/square: 1 rounds, expected exactly 2"
    assert head.split()[0] == "depth"
    assert row.split() == ["20", "server0", "server1", "80", "80", "20000", "21000", "layer1/square"]


def test_a_failure_on_bytes_shows_the_largest_first_and_not_everything(run):
    with pytest.raises(AssertionError) as caught:
        assert_bytes(run, at_most=4_799)
    first, _, *rows, rest = str(caught.value).splitlines()
    assert first == "op (all): 4,800 bytes server0->server1, expected at most 4,799"
    assert [row.split()[3] for row in rows] == ["320"] * 12, "levels of the adder"
    assert rest == "... and 8 more"


def test_a_failure_on_time_says_which_bound(run):
    with pytest.raises(AssertionError, match=r"op layer0: 10,000 ns, expected at most 9,999"):
        assert_time(run, op="layer0", at_most=9_999)


@pytest.mark.parametrize("check", [assert_rounds, assert_bytes, assert_time])
def test_a_pattern_that_matches_nothing_fails(run, check):
    """A mistyped op once met every `at_most`."""
    with pytest.raises(AssertionError, match=r"matches op 'layer0/gelu'; the run's ops: .*layer\*/relu"):
        check(run, op="layer0/gelu", at_most=10**9)
    assert check(run, op="layer0/gelu", exactly=0) == 0


@pytest.mark.parametrize("check", [assert_rounds, assert_bytes, assert_time])
@pytest.mark.parametrize("bounds", [{}, {"exactly": 1, "at_most": 1}])
def test_one_bound_is_needed(run, check, bounds):
    with pytest.raises(InputError, match="give one of exactly= and at_most="):
        check(run, **bounds)


def test_an_unknown_phase_is_refused(run):
    with pytest.raises(InputError, match="accepted are set-up, offline, online"):
        assert_rounds(run, phase="on-line", at_most=1)


def test_a_run_without_messages():
    run = run_protocol(nothing, X)
    assert assert_rounds(run, exactly=0) == assert_bytes(run, exactly=0) == assert_time(run, exactly=0) == 0
    assert_reveals(run, {})


def test_results_of_simulations_are_taken_too():
    """A first timing test as a user would write it."""
    result = simulate(
        Scenario(model="opt-demo", execution="shape", workload=WorkloadSpec(prompt_tokens=4, output_tokens=2))
    )
    assert_rounds(result, op="token*/layer*/ffn/relu", exactly=2 * 4 * 9)
    assert_bytes(result, op="token1/layer0/ffn/relu", exactly=232 * 640)
    assert_time(result, op="token1", at_most=result.summary["token_ns"] * 2)
    with pytest.raises(AssertionError, match="expected exactly 1\n"):
        assert_rounds(result, exactly=1)
