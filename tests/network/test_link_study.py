"""`time_messages`: what it takes, what it gives, what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import comet_sim
from comet_sim.errors import InputError
from comet_sim.network import LinkConfig
from comet_sim.network.profiles import LinkSpec, NetworkSpec, load_profile
from comet_sim.network.study import exchange, ping_pong, time_messages

_A, _B = "server0", "server1"


def test_times_over_a_shipped_profile_by_hand() -> None:
    first, second = comet_sim.time_messages([("0ms", _A, _B, "1MB"), ("1ms", _A, _B, 968, 3)], "wan-100m")
    assert first.delivered == 8 * (10**6 + 32 + 691 * 66) * 10 + 20_000_000
    assert second.queued == first.delivered - 20_000_000 - 1_000_000
    assert (second.created, second.payload, second.priority) == (1_000_000, 968, 3)


def test_all_ways_to_give_a_network_agree(tmp_path: Path) -> None:
    sends: list[Any] = [(0, _A, _B, 5000), (7, "user", _A, 100)]
    text = '[defaults]\nrate = "1Gbit"\nrtt = "4ms"\n'
    (tmp_path / "net.toml").write_text(text, encoding="utf-8")
    spec = LinkSpec(rate="1Gbit", rtt="4ms")
    ways = [
        tmp_path / "net.toml",
        str(tmp_path / "net.toml"),
        spec,
        NetworkSpec(defaults=spec),
        load_profile(str(tmp_path / "net.toml")),
        LinkConfig(10**9, 2_000_000),
        NetworkSpec(defaults=spec).resolve((_A, _B, "user")),
    ]
    times = [time_messages(sends, way) for way in ways]
    assert all(rows == times[0] for rows in times)


def test_patterns_by_hand() -> None:
    link = LinkConfig(None, 1000, host=10)
    assert ping_pong(5, 3, link).rounds == (2020,) * 3
    played = exchange("1kB", 4, link)
    assert played.rounds == (1010,) * 4
    assert played.mean_ns == 1010
    assert len(played.messages) == 8


def test_no_messages_no_times() -> None:
    assert time_messages([], "ideal") == []


@pytest.mark.parametrize(
    ("send", "said"),
    [
        ((0, _A, "server2", 1), "message 1: unknown party 'server2'; accepted: user"),
        ((0, _A, _A, 1), "no route from server0 to server0"),
        ((-1, _A, _B, 1), r"message 1: time \(ns\) is -1"),
        ((0.5, _A, _B, 1), r"message 1: time \(ns\) is 0.5"),
        ((0, _A, _B, -1), r"message 1: size \(bytes\) is -1"),
        ((0, _A, _B, True), r"message 1: size \(bytes\) is True"),
        ((0, _A, _B, 1, -1), "message 1: priority is -1"),
        (("5", _A, _B, 1), "message 1: .*no unit"),
        ((0, _A, _B), "message 1: .*accepted: time, from, to, size"),
    ],
)
def test_refusals_name_the_message(send: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        time_messages([(0, _A, _B, 1), send], "ideal")


def test_patterns_need_a_round() -> None:
    for play in (ping_pong, exchange):
        with pytest.raises(InputError, match="rounds is 0"):
            play(1, 0, "ideal")


@pytest.mark.parametrize("transport", ["ideal", "tcp", "gloo"])
@pytest.mark.parametrize(
    "settings",
    [{"rate": 1, "delay": 0}, {"rate": None, "delay": 2**61}, {"rate": None, "delay": 0, "host": 2**61}],
)
def test_time_beyond_64_bits_is_refused_by_name(transport: str, settings: dict[str, Any]) -> None:
    """Broke: a trace's columns hold 64 bits, and packing them failed with an error that named nothing."""
    link = LinkConfig(**settings, transport=transport)
    with pytest.raises(
        InputError, match=r"passed 2\^63 ns .* at message \d+, link server\d->server\d: check rate"
    ):
        ping_pong(2**31, 8, link, reply=2**31)
    assert time_messages([(0, _A, _B, 1)], link)[0].delivered < 2**63
