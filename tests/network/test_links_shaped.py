"""Chance, schedules and classes on a link, each worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from comet_sim.network import LinkConfig
from comet_sim.network.study import Timed, exchange, time_messages

_MS = 10**6
_A, _B = "server0", "server1"


def line(**settings: Any) -> LinkConfig:
    """8 Mbit/s, so 1 us a byte; 1000-byte packets without headers, 1 ms delay."""
    usual: dict[str, Any] = {"rate": 8 * 10**6, "delay": _MS, "packet_overhead": 0, "mss": 1000}
    return LinkConfig(**{**usual, **settings})


def play(link: LinkConfig, *sends: tuple[int, int, int], seed: int = 0) -> list[Timed]:
    """Time (when, bytes on the wire, priority); a message's frame is taken off its size."""
    return time_messages(
        [(when, _A, _B, size - 32, priority) for when, size, priority in sends], link, seed=seed
    )


def test_an_outage_interrupts_a_message_and_counts_as_queueing() -> None:
    [row] = play(line(outages=((2 * _MS, 5 * _MS),)), (0, 4000, 0))
    assert (row.serialise, row.queued, row.propagate) == (4 * _MS, 3 * _MS, _MS)
    assert row.delivered == 8 * _MS


def test_what_is_under_way_when_an_outage_begins_arrives() -> None:
    [row] = play(line(outages=((2 * _MS, 50 * _MS),)), (0, 2000, 0))
    assert row.delivered == 3 * _MS


def test_rate_steps_hold_from_their_time_on() -> None:
    # 2 ms at 1 us a byte are 2000 bytes; the other 2000 take 4 us each, until 10 ms
    [slow] = play(line(rate_steps=((2 * _MS, 2 * 10**6),)), (0, 4000, 0))
    assert (slow.serialise, slow.delivered) == (10 * _MS, 11 * _MS)
    # 2000 bytes by 2 ms, 1000 more by 3 ms at 2 Mbit are only 250: 1750 are left, at 8 us a ms... by 16 Mbit
    [back] = play(line(rate_steps=((2 * _MS, 2 * 10**6), (3 * _MS, 16 * 10**6))), (0, 4000, 0))
    assert back.serialise == 3 * _MS + 1750 * 500


def test_a_mahimahi_trace_lets_1500_bytes_go_at_each_of_its_times_and_repeats() -> None:
    link = line(rate=None, trace=(2, 3, 3, 7))
    rows = play(link, (0, 1500, 0), (0, 1500, 0), (0, 1500, 0), (0, 1500, 0), (0, 1500, 0))
    # 2, 3, 3 and 7 ms; then again, 7 ms later
    assert [row.delivered // _MS - 1 for row in rows] == [2, 3, 3, 7, 9]


def test_an_opportunity_is_shared_by_what_waits_for_it_and_lost_otherwise() -> None:
    link = line(rate=None, trace=(2, 4, 6))
    rows = play(link, (0, 700, 0), (0, 700, 0), (0, 700, 0), (4 * _MS + 1, 100, 0))
    # 700 and 700 at 2 ms, the third begins with the 100 bytes left then; what comes just after 4 ms waits for 6
    assert [row.delivered // _MS - 1 for row in rows] == [2, 2, 4, 6]


def test_opportunities_within_an_outage_are_lost() -> None:
    [row] = play(line(rate=None, trace=(2, 4, 6), outages=((3 * _MS, 6 * _MS),)), (0, 3000, 0))
    assert row.delivered == 7 * _MS  # 2 ms, then 6, as 4 is out
    [late] = play(line(rate=None, trace=(1,), outages=((0, 10 * _MS),)), (0, 1500, 0))
    assert late.delivered == 11 * _MS


def test_jitter_delays_messages_up_to_its_size_and_keeps_their_order() -> None:
    link = line(rate=None, jitter=5 * _MS)
    rows = play(link, *((i * 10_000, 100, 0) for i in range(400)))
    extra = [row.propagate - _MS for row in rows]
    assert min(extra) >= 0 and max(extra) <= 5 * _MS
    assert 2.2 * _MS < sum(extra) / len(extra) < 2.8 * _MS
    times = [row.delivered for row in rows]
    assert times == sorted(times)
    assert any(row.stall for row in rows)  # an early one waits for the late one before it


def test_jitter_depends_on_seed_and_link_only() -> None:
    link = line(jitter=5 * _MS)
    sends = [(0, 100, 0)] * 5
    assert play(link, *sends) == play(link, *sends)
    assert play(link, *sends) != play(link, *sends, seed=1)
    both = time_messages([(0, _A, _B, 68, 0), (0, _B, _A, 68, 0), (0, "user", _A, 68, 0)], link)
    assert play(link, (0, 100, 0))[0].delivered == both[0].delivered
    assert len({row.propagate for row in both}) == 3


def test_a_lost_packet_costs_a_round_trip_and_its_time_on_the_line() -> None:
    link = line(loss=Fraction(1, 4))
    rows = play(link, *((i * 100 * _MS, 1000, 0) for i in range(400)))
    tries = [row.serialise // _MS for row in rows]
    assert all(row.stall == (n - 1) * 2 * _MS and row.queued == 0 for row, n in zip(rows, tries, strict=True))
    assert all(
        row.delivered - row.created == n * _MS + row.stall + _MS for row, n in zip(rows, tries, strict=True)
    )
    assert 1.2 < sum(tries) / len(tries) < 1.5  # 1 / (1 - 1/4) = 1.33
    assert all(row.wire == 1000 for row in rows)


def test_only_lost_packets_are_sent_again() -> None:
    [row] = play(line(loss=Fraction(1, 10)), (0, 500_500, 0))
    # 501 packets, a tenth again, a tenth of those again: 556 in all
    assert 530 < row.serialise / _MS < 590


def test_an_urgent_class_cuts_in_at_the_next_packet_boundary() -> None:
    link = line(classes=2)
    bulk, urgent = play(link, (0, 10_000, 1), (2_300_000, 500, 0))
    # packet 3 leaves at 3 ms, the urgent 500 bytes at 3.5, the bulk half a millisecond later than alone
    assert (urgent.queued, urgent.delivered) == (700_000, 4_500_000)
    assert (bulk.queued, bulk.delivered) == (500_000, 11_500_000)


def test_without_classes_nothing_cuts_in() -> None:
    bulk, urgent = play(line(), (0, 10_000, 1), (2_300_000, 500, 0))
    assert (bulk.delivered, urgent.delivered) == (11 * _MS, 11_500_000)


def test_classes_beyond_the_last_are_the_last() -> None:
    rows = play(line(classes=2), (0, 1000, 7), (0, 1000, 1), (0, 1000, 0))
    assert [row.delivered // _MS for row in rows] == [2, 4, 3]


def test_a_connection_each_an_urgent_message_does_not_wait_for_a_late_one_of_another_class() -> None:
    link = line(rate=None, jitter=50 * _MS, classes=2)
    rows = play(link, *((i, 100, i % 2) for i in range(200)))
    for klass in (0, 1):
        times = [row.delivered for row in rows if row.priority == klass]
        assert times == sorted(times)
    assert [row.delivered for row in rows] != sorted(row.delivered for row in rows)


@pytest.mark.parametrize(
    ("words", "delays"), [(1, 2), (2, 2), (3, 4), (100, 4), (16_384, 4), (131_072, 4), (600_000, 6)]
)
def test_a_gloo_round_takes_several_delays(words: int, delays: int) -> None:
    link = LinkConfig(None, 20 * _MS, transport="gloo")
    assert exchange(8 * words, 3, link).rounds == (delays * 20 * _MS,) * 3


@pytest.mark.parametrize(
    ("words", "segments"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 3), (10, 4), (16_384, 4)]
)
def test_gloo_sends_whole_words_and_its_own_frames(words: int, segments: int) -> None:
    [row] = time_messages(
        [(0, _A, _B, 8 * words - 3, 0)], LinkConfig(None, 0, packet_overhead=0, transport="gloo")
    )
    assert row.wire == 8 * words + 144 * segments


def test_gloo_behaves_the_same_with_a_schedule_that_never_matters() -> None:
    """Two classes of links do gloo's arithmetic; they must agree."""
    plain = LinkConfig(10**8, 20 * _MS, host=_MS, transport="gloo")
    shaped = LinkConfig(10**8, 20 * _MS, host=_MS, transport="gloo", outages=((10**15, 10**15 + 1),))
    assert exchange(800, 9, plain) == exchange(800, 9, shaped)


@pytest.mark.parametrize("transport", ["ideal", "tcp"])
def test_one_message_at_a_time_takes_as_long_with_several_classes(transport: str) -> None:
    plain = line(transport=transport, rate=10**8, delay=20 * _MS)
    classes = line(transport=transport, rate=10**8, delay=20 * _MS, classes=3)
    sends = [(i * 10**10, 300_000, 1) for i in range(3)]
    assert play(plain, *sends) == play(classes, *sends)
