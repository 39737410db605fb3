from __future__ import annotations

from fractions import Fraction

import pytest
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE, Message, Phase
from comet_sim.network import FRAME_BYTES, Envelope, Link, LinkConfig, wire_bytes


def envelope(id: int, payload_bytes: int, created: int = 0) -> Envelope:
    return Envelope(id, Phase.ONLINE, 3, 1, 2, ("tag", id), b"", payload_bytes, 4, 5, NO_CAUSE, created)


def run(config: LinkConfig, sends: list[tuple[int, int]]) -> tuple[Link, list[tuple[int, Message]]]:
    """Send (time, payload bytes) over one link; return it and (delivery time, record) in delivery order."""
    clock = FakeClock()
    done: list[tuple[int, Message]] = []
    link = Link(clock, "a->b", config, lambda e: done.append((clock.now_ns, e.record())))
    for id, (when, size) in enumerate(sends):
        clock.post(when, link.send, envelope(id, size, when))
    clock.run()
    return link, done


def test_frame_is_32_bytes_and_wire_bytes_by_hand() -> None:
    assert FRAME_BYTES == 32
    assert wire_bytes(0, 1448, 66) == 32 + 66
    assert wire_bytes(1416, 1448, 66) == 1448 + 66  # frame and payload just fill a packet
    assert wire_bytes(1417, 1448, 66) == 1449 + 2 * 66
    assert wire_bytes(1, 1, 10) == 33 + 33 * 10


def test_one_message_by_hand() -> None:
    # 968 + 32 = 1000 bytes, one packet of 66: 1066 bytes are 8528 bits, at 1 Gbit 8528 ns
    config = LinkConfig(rate=10**9, delay=1_000_000, host=500)
    link, [(when, record)] = run(config, [(7, 968)])
    assert when == record.delivered == 7 + 500 + 8528 + 1_000_000
    assert record == Message(0, 2, 3, 1, 2, 968, 1066, 4, 5, -1, 7, 0, 500, 0, 8528, 1_000_000)
    assert (link.messages, link.payload_bytes, link.wire_bytes, link.busy, link.queued) == (
        1,
        968,
        1066,
        8528,
        0,
    )


def test_second_message_waits_for_the_first_and_not_for_its_host() -> None:
    # 8 bit a byte at 8 Gbit: 1 ns a byte. Host overhead is latency: both messages spend it at the same time.
    config = LinkConfig(rate=8 * 10**9, delay=100, packet_overhead=0, mss=10**6, host=50)
    link, [(first, _), (second, record)] = run(config, [(0, 968), (10, 968)])
    assert first == 50 + 1000 + 100
    assert second == first + 1000
    assert (record.queued, record.host, record.serialise) == (50 + 1000 - (10 + 50), 50, 1000)
    assert (link.queued, link.busy) == (990, 2000)


def test_serialisation_rounds_up() -> None:
    """Rounding down would let a message arrive before its last bit."""
    _, [(when, _)] = run(LinkConfig(rate=3, delay=0, packet_overhead=0), [(0, 0)])
    assert when == -(-8 * 32 * 10**9 // 3) == 85_333_333_334


def test_unlimited_rate_takes_no_time_and_keeps_order() -> None:
    link, done = run(LinkConfig(rate=None, delay=5), [(0, 10**9), (0, 1), (0, 10**6)])
    assert [(when, record.id) for when, record in done] == [(5, 0), (5, 1), (5, 2)]
    assert link.busy == 0
    assert link.wire_bytes > 10**9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": 0}, "rate is 0"),
        ({"delay": -1}, "delay is -1"),
        ({"mss": 0}, "mss is 0"),
        ({"packet_overhead": -1}, "packet_overhead"),
        ({"host": -1}, "host"),
        ({"transport": "tpc"}, "transport is 'tpc'; accepted: ideal, tcp, tcp-segments, gloo"),
        ({"transport": "tcp", "loss": Fraction(1, 9)}, "'tcp' cannot honour loss; .*: ideal, tcp-segments"),
        ({"transport": "tcp", "jitter": 1}, "'tcp' cannot honour jitter"),
        ({"transport": "tcp", "rate_steps": ((1, 1),)}, "'tcp' cannot honour rate_steps"),
        ({"transport": "tcp", "trace": (1,), "rate": None}, "'tcp' cannot honour trace"),
        ({"transport": "tcp", "queue": 9000}, "'tcp' cannot honour queue; transports that do: tcp-segments"),
        ({"transport": "gloo", "window": 9000}, "'gloo' cannot honour window"),
        ({"loss": Fraction(1)}, "loss is 1; it must be at least 0 and below 1"),
        ({"classes": 0}, "classes is 0"),
        ({"jitter": -1}, "jitter is -1"),
        ({"transport": "tcp-segments", "queue": 1513}, "queue is 1513 bytes; .* a packet, 1514"),
        ({"transport": "tcp", "window": 1447}, "window is 1447 bytes; .* a packet, 1448"),
        ({"transport": "tcp", "idle_reset": 0}, "idle_reset is 0"),
        ({"outages": ((5, 5),)}, "from 5 to 5 ns must end after it starts"),
        ({"outages": ((5, 7), (6, 9))}, "outages overlap or are out of order at 6 ns"),
        ({"rate": None, "rate_steps": ((5, 1),)}, "rate_steps need a rate to start from"),
        ({"rate_steps": ((5, 0),)}, "give outages"),
        ({"rate_steps": ((5, 1), (5, 2))}, "each later than the one before"),
        ({"trace": (1,)}, "both a rate and a trace"),
        ({"rate": None, "trace": (2, 1)}, "rising order"),
        ({"rate": None, "trace": (0,)}, "the last at least 1"),
    ],
)
def test_impossible_links_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LinkConfig(**{"rate": 1, "delay": 0, **change})  # type: ignore[arg-type]


CONFIGS = st.builds(
    LinkConfig,
    rate=st.none() | st.integers(1, 10**12),
    delay=st.integers(0, 10**9),
    packet_overhead=st.integers(0, 100),
    mss=st.integers(1, 9000),
    host=st.integers(0, 10**6),
)
SENDS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), min_size=1, max_size=20).map(sorted)


@given(CONFIGS, SENDS)
def test_parts_order_and_bytes(config: LinkConfig, sends: list[tuple[int, int]]) -> None:
    link, done = run(config, sends)
    records = [record for _, record in done]
    assert [record.id for record in records] == list(range(len(sends)))  # FIFO, nothing lost or doubled
    for when, record in done:
        assert when == record.delivered
        assert min(record.queued, record.host, record.stall, record.serialise, record.propagate) >= 0
    assert link.payload_bytes == sum(size for _, size in sends) == sum(record.payload for record in records)
    assert link.wire_bytes == sum(record.wire for record in records) >= link.payload_bytes + 32 * len(sends)
    assert link.queued == sum(record.queued for record in records)
    assert link.busy == sum(record.serialise for record in records)


@given(CONFIGS, SENDS)
def test_no_link_beats_its_rate(config: LinkConfig, sends: list[tuple[int, int]]) -> None:
    link, done = run(config, sends)
    makespan = done[-1][0] - sends[0][0] - config.delay - config.host
    if config.rate is not None:
        assert makespan * config.rate >= 8 * 10**9 * link.wire_bytes
    assert makespan >= link.busy


@given(CONFIGS, SENDS, st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_better_link_is_never_later(
    config: LinkConfig, sends: list[tuple[int, int]], faster: int, nearer: int, lighter: int
) -> None:
    better = LinkConfig(
        rate=None if config.rate is None else config.rate + faster,
        delay=max(0, config.delay - nearer),
        packet_overhead=config.packet_overhead,
        mss=config.mss,
        host=max(0, config.host - lighter),
    )
    _, before = run(config, sends)
    _, after = run(better, sends)
    assert all(new <= old for (new, _), (old, _) in zip(after, before, strict=True))
