"""When corrections are dealt: results and traffic between servers stay, times and the dealer's traffic differ."""

import numpy as np
import pytest

from comet_sim.errors import InputError
from comet_sim.events import Phase
from comet_sim.mpc import compare
from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.correlated import AND, B2A, MASKED, MATMUL, MULTIPLY, SQUARE, MaskRef, layout
from comet_sim.mpc.supply import decode_request, encode_request
from comet_sim.network import LinkConfig, Topology
from comet_sim.roles.dealer import Dealing
from comet_sim.testing import run_protocol

MODES = ("offline", "on-demand", "streamed")
X = np.linspace(-3, 3, 400)


async def program(s, x):
    """Forks, so that positions are reached in another order than the dealer walks them."""
    positive = await compare.relu(s, x)
    first, second = await s.gather(lambda c: compare.relu(c, positive), lambda c: compare.relu(c, x))
    return first + second


def run(mode: str, *, exact: bool = True, stock: int = 1500, topology: Topology | None = None):
    return run_protocol(program, X, exact=exact, dealing=Dealing(mode, stock), topology=topology)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_computes_the_same_over_the_same_rounds(mode):
    outcome, offline = run(mode), run("offline")
    assert (outcome.raw == offline.raw).all(), "masks depend on positions, not on when they are dealt"
    assert (outcome.bytes, outcome.rounds, outcome.corrections) == (
        offline.bytes,
        offline.rounds,
        offline.corrections,
    )
    assert outcome.unused == 0
    assert outcome.records() == run(mode, exact=False).records()


def topology(dealer_delay: int) -> Topology:
    servers = LinkConfig(rate=1_000_000_000, delay=1_000_000)
    dealer = LinkConfig(rate=1_000_000_000, delay=dealer_delay)
    parties = ("server0", "server1", "dealer")
    links = {(a, b): dealer if "dealer" in (a, b) else servers for a in parties for b in parties if a != b}
    return Topology(parties, links)


def test_a_request_hides_behind_the_opening_while_the_dealer_is_near():
    """C is needed only after the opening: a dealer at a third of the delay costs next to nothing, a far one shows."""
    offline = run("offline", topology=topology(300_000)).online_ns
    assert run("on-demand", topology=topology(300_000)).online_ns < 1.15 * offline
    assert run("on-demand", topology=topology(1_000_000)).online_ns > 1.5 * offline


def slow_dealer() -> Topology:
    return topology(20_000_000)


def test_a_slow_dealer_shows_as_messages_that_name_the_op():
    """Server 1 waits for a reply whose op path says what it is for; the next opening names it as its cause."""
    outcome = run("on-demand", topology=slow_dealer())
    text = outcome.names.text
    replies = {m.id: text(m.path) for m in outcome.online if text(m.src) == "dealer"}
    assert set(replies.values()) <= {"", "ltz"}
    stalled = [m for m in outcome.messages + outcome.computes if m.cause in replies]
    assert len(stalled) >= outcome.rounds - 1, "every round waits for the dealer"
    assert outcome.online_ns > outcome.rounds * 40_000_000 > run("offline", topology=slow_dealer()).online_ns


def test_a_streaming_dealer_keeps_to_its_bound():
    """The stock never holds more than the bound, however large its pieces (800 here) are beside it."""
    for stock in (800, 801, 1199, 1600, 2500, 12_000):
        outcome = run("streamed", stock=stock)
        assert outcome.stock_peak <= stock, "once broken by pieces above half of the bound"
        assert outcome.records() == run("streamed", stock=stock, exact=False).records()
        assert outcome.unused == 0
    assert run("offline").stock_peak == run("offline").corrections


@pytest.mark.parametrize("exact", [True, False])
def test_a_stock_below_one_piece_is_refused(exact):
    """Server 1 needs a piece whole: running on would break the bound without a word."""
    with pytest.raises(ExceptionGroup) as caught:
        run("streamed", stock=799, exact=exact)
    assert caught.group_contains(InputError, match=r"6,392 bytes .* 6,400 bytes .*\(and at ltz\)", depth=1)


@pytest.mark.parametrize("mode", MODES)
def test_dealer_messages_of_the_online_phase_are_no_rounds(mode):
    outcome = run(mode)
    text = outcome.names.text
    for message in outcome.messages:
        if "dealer" in (text(message.src), text(message.dst)) and message.phase == Phase.ONLINE:
            assert message.depth == 0


@pytest.mark.parametrize(
    ("kind", "operands"),
    [
        (MULTIPLY, ((3, 4), (4,))),
        (SQUARE, ((7,),)),
        (MATMUL, ((2, 3, 4), (2, 4, 5))),
        (AND, ((1, 2, 3),)),
        (B2A, ((16, 2),)),
        (MASKED, ((1, 8), MaskRef("layer0/attention/qkv", 2, 1, 8, (2,), True))),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_requests_read_back(kind, operands):
    """The dealer learns position, kind and shapes from the bytes alone."""
    if kind is AND:
        operands = operands * 2
    form = layout(kind, *operands)
    position = (2**63 - 1, 12)
    assert decode_request(encode_request(position, kind, form)) == (position, kind, form)


async def nothing(s, x):
    return await matmul(s, x, x)


@pytest.mark.parametrize("mode", MODES)
def test_one_piece_is_enough(mode):
    outcome = run_protocol(nothing, np.eye(3), dealing=Dealing(mode, 9))
    assert np.allclose(outcome.raw / 2**32, np.eye(3), atol=1e-3)
