"""When randomness is dealt changes times and dealer traffic, and nothing between the servers."""

import numpy as np
import pytest

from comet_sim.mpc import compare, functions
from comet_sim.mpc.functions import Iterations
from comet_sim.roles.dealer import Dealing
from comet_sim.testing import run_protocol

X = np.linspace(-3, 3, 21).reshape(3, 7)
MODES = {
    "on-demand": Dealing("on-demand"),
    "streamed": Dealing("streamed"),
    "streamed, small stock": Dealing("streamed", stock=256),
}


async def forked(s, x):
    """Two branches of unequal length, then a sequence."""
    first, second = await s.gather(
        lambda child: compare.relu(child, x),
        lambda child: functions.softmax(child, x, None, Iterations()),
    )
    return await compare.relu(s, first - second)


def between_servers(run):
    text = run.names.text
    return sorted(
        (text(message.src), text(message.path), message.depth, message.payload)
        for message in run.online
        if "dealer" not in (text(message.src), text(message.dst))
    )


@pytest.mark.parametrize("mode", MODES)
def test_modes_differ_in_dealer_traffic_only(mode):
    """Same numbers, same messages between the servers, same randomness at every position."""
    ahead = run_protocol(forked, X, seed=4)
    run = run_protocol(forked, X, seed=4, dealing=MODES[mode])
    assert np.array_equal(run.raw, ahead.raw)
    assert between_servers(run) == between_servers(ahead)
    assert (run.rounds, run.bytes) == (ahead.rounds, ahead.bytes)
    assert (run.corrections, len(run.requests), run.unused) == (ahead.corrections, len(ahead.requests), 0)
    text = run.names.text
    dealt = sum(message.payload for message in run.online if text(message.src) == "dealer")
    assert dealt == 8 * run.corrections


@pytest.mark.parametrize("mode", MODES)
def test_shape_runs_follow_exact_runs_in_every_mode(mode):
    exact, shaped = (run_protocol(forked, X, exact=exact, dealing=MODES[mode]) for exact in (True, False))
    assert exact.records() == shaped.records()
