"""`tcp` against its formula, and what `tcp-segments` does about loss, full queues and lines that are down."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.network import LinkConfig
from comet_sim.network.study import exchange, ping_pong, time_messages

_MS = 10**6
_A, _B = "server0", "server1"


def formula(link: LinkConfig, payload: int) -> float:
    """A first message's time, ns, from the closed form with floats: h + L + 8(S + n ovh)/B + stalls."""
    assert link.rate is not None
    size = payload + 32
    packets = -(-size // link.mss)
    packet = 8e9 * (link.mss + link.packet_overhead) / link.rate
    time = link.host + link.delay + 8e9 * (size + packets * link.packet_overhead) / link.rate
    window, most = 10, (link.window or 3 * 2**20) // link.mss
    while packets > window and window * packet < 2 * link.delay + packet:
        time += max(0.0, 2 * link.delay + packet - window * packet)
        packets -= window
        window = min(2 * window, most)
    return time


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 20_000_000),
    st.integers(10**6, 10**10),
    st.integers(0, 100 * _MS),
    st.sampled_from([None, 100_000]),
)
def test_a_first_message_takes_the_time_of_the_closed_form(
    payload: int, rate: int, delay: int, window: int | None
) -> None:
    link = LinkConfig(rate, delay, host=300_000, transport="tcp", window=window)
    [row] = time_messages([(0, _A, _B, payload, 0)], link)
    assert row.delivered == pytest.approx(formula(link, payload), abs=1000, rel=1e-6)


def test_the_window_is_kept_for_later_messages_of_the_connection() -> None:
    link = LinkConfig(10**9, 40 * _MS, transport="tcp")
    sends = [(0, _A, _B), (10**9, _A, _B), (2 * 10**9, _A, _B), (2 * 10**9, _B, _A)]
    first, second, third, other = time_messages([(*send, 10**6, 0) for send in sends], link)
    assert 6 * 78 * _MS < first.stall < 6 * 80 * _MS  # windows of 10, 20, 40, 80, 160 and 320 packets
    assert 0 < second.stall < 80 * _MS  # 640 of its 713 packets at once
    assert third.stall == 0
    assert other.stall == first.stall  # a connection of its own


def test_an_idle_connection_begins_anew_only_where_that_is_set() -> None:
    kept = LinkConfig(10**9, 40 * _MS, transport="tcp")
    anew = LinkConfig(10**9, 40 * _MS, transport="tcp", idle_reset=10**9)
    for idle, link, grown in ((5 * 10**9, kept, True), (5 * 10**9, anew, False), (5 * 10**8, anew, True)):
        first = time_messages([(0, _A, _B, 10**6, 0)], link)[0]
        rows = time_messages([(0, _A, _B, 10**6, 0), (first.delivered + idle, _A, _B, 10**6, 0)], link)
        assert (rows[1].stall < rows[0].stall) is grown


def test_the_window_cap_limits_a_long_fat_link() -> None:
    # 3 MiB every 80 ms are 315 Mbit/s, whatever the rate
    row = time_messages([(0, _A, _B, 2**28, 0)], LinkConfig(10**10, 40 * _MS, transport="tcp"))[0]
    assert 2**28 * 8e9 / row.delivered == pytest.approx(3 * 2**20 * 8 / 0.080, rel=0.1)


@pytest.mark.parametrize(
    ("size", "delay", "off"),
    [
        (100, 10 * _MS, 0.001),
        (65_536, 0, 0.01),
        (65_536, 10 * _MS, 0.15),
        (2**24, 0, 0.01),
        (2**24, 10 * _MS, 0.01),
    ],
)
def test_segments_agree_with_the_closed_form_where_that_holds(size: int, delay: int, off: float) -> None:
    """One way, no loss, no limit to the queue: the two spread a window's packets differently in slow start."""
    closed = sum(ping_pong(size, 2, LinkConfig(10**8, delay, transport="tcp")).rounds)
    played = sum(ping_pong(size, 2, LinkConfig(10**8, delay, transport="tcp-segments")).rounds)
    assert played == pytest.approx(closed, rel=off)


def test_every_message_arrives_in_order_whatever_gets_lost() -> None:
    link = LinkConfig(
        10**8, 5 * _MS, transport="tcp-segments", loss=Fraction(3, 100), jitter=2 * _MS, queue=50_000
    )
    rows = time_messages([(i * _MS, _A, _B, 20_000, 0) for i in range(60)], link, seed=3)
    times = [row.delivered for row in rows]
    assert times == sorted(times)


def test_loss_slows_a_connection_down_much_as_the_square_root_law_says() -> None:
    """Mathis et al. 1997: rate is about 1.22 packets / (round trip sqrt(loss)); CUBIC does somewhat better."""
    for loss in (Fraction(1, 1000), Fraction(1, 100)):
        link = LinkConfig(10**9, 20 * _MS, transport="tcp-segments", loss=loss)
        row = time_messages([(0, _A, _B, 10_000_000, 0)], link)[0]
        rate = 10_000_000 / 1448 / (row.delivered / 10**9)
        law = 1.22 / (0.040 * float(loss) ** 0.5)
        assert 0.6 * law < rate < 3 * law


def test_a_short_queue_drops_packets_and_costs_time() -> None:
    clean = exchange(2_000_000, 1, LinkConfig(10**8, 20 * _MS, transport="tcp-segments")).rounds[0]
    short = exchange(
        2_000_000, 1, LinkConfig(10**8, 20 * _MS, transport="tcp-segments", queue=30_000)
    ).rounds[0]
    assert short > 1.2 * clean


def test_an_outage_is_survived_and_its_end_noticed_by_the_timer() -> None:
    link = LinkConfig(
        10**8, 5 * _MS, transport="tcp-segments", queue=30_000, outages=((20 * _MS, 2000 * _MS),)
    )
    row = time_messages([(0, _A, _B, 1_000_000, 0)], link)[0]
    assert 2000 * _MS < row.delivered < 10_000 * _MS


def test_a_connection_without_any_answer_is_given_up() -> None:
    """Broke: at 1 bit/s each packet sent again made the queue longer, for ever."""
    with pytest.raises(InputError, match=r"link server0->server1: .* 15 .* check its rate, delay, loss"):
        time_messages([(0, _A, _B, 1000, 0)], LinkConfig(1, 0, transport="tcp-segments"))


def test_acknowledgements_share_the_line_with_data_the_other_way() -> None:
    link = LinkConfig(10**7, _MS, transport="tcp-segments")
    alone = time_messages([(0, _A, _B, 500_000, 0)], link)[0].delivered
    both = exchange(500_000, 1, link).rounds[0]
    assert alone * 1.01 < both < alone * 1.10


def test_routers_give_each_hop_a_connection_of_its_own() -> None:
    from comet_sim.network import Topology

    hop = LinkConfig(10**8, 10 * _MS, transport="tcp-segments")
    ends = [(_A, "r"), ("r", _A), (_B, "r"), ("r", _B)]
    relayed = Topology((_A, _B), dict.fromkeys(ends, hop), ("r",))
    [row] = time_messages([(0, _A, _B, 100_000, 0)], relayed)
    [once] = time_messages([(0, _A, _B, 100_000, 0)], hop)
    assert row.delivered == 2 * once.delivered
