"""Fixed masks: a tensor version is opened once, products stay exact, the dealer knows the same masks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.masking import Masked
from comet_sim.roles.dealer import Dealing
from comet_sim.testing import Integers, run_protocol


def sizes(run) -> list[int]:
    """Payloads of the rounds, as server 0 sends them."""
    text = run.names.text
    return [message.payload for message in run.online if text(message.src) == "server0" and message.depth]


async def three_uses(s, x, w):
    weights = Masked(s, "w", w)
    return tuple([await matmul(s, x, weights) for _ in range(3)])


async def three_per_use(s, x, w):
    return tuple([await matmul(s, x, w) for _ in range(3)])


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32))
def test_products_equal_per_use_masking_to_the_last_bit(m, k, n, seed):
    """The ring product does not depend on the masks; bytes are 8kn less from the second use on."""
    draw = np.random.default_rng(seed)
    x = draw.integers(-(2**63), 2**63, (m, k), np.int64)
    w = draw.integers(-(2**63), 2**63, (k, n), np.int64)
    reuse = run_protocol(three_uses, Integers(x), Integers(w), seed=seed)
    per_use = run_protocol(three_per_use, Integers(x), Integers(w), seed=seed)
    for mine, theirs in zip(reuse.raw, per_use.raw, strict=True):
        assert (mine == theirs).all()
    assert sizes(reuse) == [8 * (m * k + k * n), 8 * m * k, 8 * m * k]
    assert sizes(per_use) == [8 * (m * k + k * n)] * 3


async def growing(s, queries, keys):
    """A cache that grows along its middle axis, used transposed."""
    cache = Masked(s, "keys", keys[:, :3], axis=1)
    first = await matmul(s, queries, cache.swapaxes(1, 2))
    cache.append(s, keys[:, 3:4])
    cache.append(s, keys[:, 4:])
    return first, await matmul(s, queries, cache.swapaxes(1, 2))


async def both_fixed(s, x, w):
    rows, weights = Masked(s, "x", x), Masked(s, "w", w)
    return await matmul(s, rows, weights), await matmul(s, rows, weights)


@pytest.mark.parametrize("mode", ["offline", "on-demand", "streamed"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_cache_sends_only_its_new_rows(mode, exact):
    """Appended rows get masks of their own that continue the stream; the dealer needs no more than the name."""
    draw = np.random.default_rng(1)
    queries, keys = draw.integers(-50, 50, (2, 1, 6)), draw.integers(-50, 50, (2, 5, 6))
    run = run_protocol(growing, Integers(queries), Integers(keys), exact=exact, dealing=Dealing(mode, 30))
    assert sizes(run) == [8 * (12 + 2 * 3 * 6), 8 * (12 + 2 * 2 * 6)]
    if exact:
        assert (run.raw[0] == queries @ keys[:, :3].swapaxes(1, 2)).all()
        assert (run.raw[1] == queries @ keys.swapaxes(1, 2)).all()


def test_two_opened_operands_multiply_without_a_message():
    """What makes a refill free: both were opened before, so the product is local."""
    draw = np.random.default_rng(2)
    x, w = draw.integers(-50, 50, (4, 3)), draw.integers(-50, 50, (3, 2))
    run = run_protocol(both_fixed, Integers(x), Integers(w))
    assert sizes(run) == [8 * (12 + 6)]
    assert (run.raw[0] == x @ w).all()
    assert (run.raw[1] == x @ w).all()


async def two_versions(s, w):
    first = Masked(s, "w", w)
    second = Masked(s, "w", w, version=1)
    return first.pending() - second.pending() + s.ops.zeros(w.shape)


def test_versions_have_independent_masks():
    """If the mask of a shuffled tensor were the shuffled mask, two openings would tell the permutation."""
    w = np.arange(600).reshape(20, 30)
    run = run_protocol(two_versions, Integers(w))
    difference = run.raw.view(np.uint64)
    assert np.unique(difference).size == difference.size
    assert abs((difference >> np.uint64(63)).mean() - 0.5) < 0.1


@pytest.mark.parametrize("exact", [True, False])
def test_a_mask_hides_one_tensor_only(exact):
    """Two tensors under one mask, each opened, would tell their difference; a new version is independent."""

    async def renewed(s, w, again):
        rows = await s.gather(lambda child: use(child, w, 0), lambda child: use(child, again, 1))
        return rows[0] + rows[1]

    async def reused(s, w, again):
        rows = await s.gather(lambda child: use(child, w, 0), lambda child: use(child, again, 0))
        return rows[0] + rows[1]

    async def use(s, w, version):
        return await matmul(s, s.ops.zeros((1, 3)), Masked(s, "w", w, version=version))

    w = np.ones((3, 2), int)
    run_protocol(renewed, Integers(w), Integers(w), exact=exact)
    with pytest.raises(ExceptionGroup) as caught:
        run_protocol(reused, Integers(w), Integers(w), exact=exact)
    assert caught.group_contains(RuntimeError, match="'w', version 0, already hides")


def test_only_the_last_two_axes_swap():
    async def swap(s, w):
        return Masked(s, "w", w).swapaxes(0, 2)

    with pytest.raises(ExceptionGroup, match=r"1 sub-exception|unhandled"):
        run_protocol(swap, Integers(np.zeros((2, 3, 4), int)))
