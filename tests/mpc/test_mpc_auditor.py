"""The auditor counts the truncations that wrapped, and nobody in the run can tell that it is there."""

import numpy as np
import pytest

from comet_sim.mpc import functions
from comet_sim.mpc.functions import Iterations
from comet_sim.mpc.session import Auditor
from comet_sim.testing import Integers, Public, run_protocol


async def truncated(s, x):
    return x, s.truncate(x)


async def divided(s, x):
    return x, s.divide(x, 3)


def wraps(outputs) -> np.ndarray:
    """Which elements wrapped, by plain integers: the signed shares' sum leaves 64 bits."""
    first, second = (output[0] for output in outputs)
    return np.array(
        [not -(2**63) <= int(a) + int(b) < 2**63 for a, b in zip(first.ravel(), second.ravel(), strict=True)]
    ).reshape(first.shape)


@pytest.mark.parametrize("program", [truncated, divided])
@pytest.mark.parametrize("magnitude", [1 << 20, 1 << 61, -(1 << 62), (1 << 63) - 1, -(1 << 63)])
def test_wraps_are_counted(program, magnitude):
    """Shares of large values wrap often (|x| / 2^64 of them): those results are wrong, and only those."""
    run = run_protocol(program, Integers(np.full(500, magnitude)), audit=True, seed=1)
    wrapped = wraps(run.outputs)
    assert run.auditor.truncated == 500
    assert run.auditor.wraps == wrapped.sum()
    divisor = 3 if program is divided else 1 << 16
    # Python integers: a wrong result may be 2^63 away from the right one.
    errors = np.array([abs(int(value) * divisor - magnitude) for value in run.raw[1]])
    assert (errors[~wrapped] <= 2 * divisor).all()
    assert (errors[wrapped] > 2 * divisor).all()
    assert abs(wrapped.mean() - abs(magnitude) / 2**64) < 0.08


def test_wraps_of_known_shares():
    auditor = Auditor()
    ends = np.array([-(2**63), 2**63 - 1, 1, -1, 2**62])
    auditor.truncation(7, 0, 0, 0, ends)
    assert (auditor.truncated, auditor.wraps) == (0, 0), "one share alone says nothing"
    auditor.truncation(7, 0, 0, 1, np.array([-1, 1, 1, -1, 2**62]))
    assert (auditor.truncated, auditor.wraps) == (5, 3)


def test_servers_may_be_truncations_apart():
    """One server may be ahead by several truncations at one position; they are compared in order."""
    auditor = Auditor()
    big, small = np.array([2**62]), np.array([5])
    for share in (big, small, big):
        auditor.truncation(0, 0, 0, 1, share)
    for share in (big, big, small):
        auditor.truncation(0, 0, 0, 0, share)
    assert (auditor.truncated, auditor.wraps) == (3, 1)


def test_truncations_in_forks_are_not_confused():
    async def one(s, x, times):
        for _ in range(times):
            x = s.truncate(x)
        return x

    async def program(s, x, y):
        parts = await s.gather(lambda child: one(child, x, 2), lambda child: one(child, y, 1))
        return tuple(parts)

    huge, small = Integers(np.full(300, -(2**63))), Integers(np.full(300, 2**20))
    run = run_protocol(program, huge, small, audit=True)
    assert run.auditor.truncated == 900
    assert run.auditor.wraps == pytest.approx(150, abs=50)


def test_an_audited_run_is_the_same_run():
    """Same messages, same times, same shares: the auditor observes, it takes no part."""

    async def softmax(s, x, n):
        return await functions.softmax(s, x, None, n)

    values = np.linspace(-6, 6, 60).reshape(4, 15)
    plain, audited = (
        run_protocol(softmax, values, Public(Iterations()), seed=4, audit=audit) for audit in (False, True)
    )
    assert plain.records() == audited.records()
    assert plain.views == audited.views
    for before, after in zip(plain.outputs, audited.outputs, strict=True):
        np.testing.assert_array_equal(before, after)
    assert audited.auditor.truncated > 60
    assert audited.auditor.wraps == 0
    assert not audited.auditor._pending, "both servers truncate the same things"
