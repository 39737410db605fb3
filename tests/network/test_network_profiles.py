from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError

from comet_sim.cli.catalogue import show_networks
from comet_sim.errors import InputError
from comet_sim.network import LinkConfig
from comet_sim.network.explain import explain
from comet_sim.network.profiles import PARTIES, LinkSpec, NetworkSpec, list_profiles, load_profile, merge

IDEAL = ["ideal", "lan-10g", "lan-1g", "lan-5g", "loopback", "wan-100m", "wan-10m", "wan-400m"]
ALL = sorted([*IDEAL, "wan-100m-gloo", "wan-100m-tcp"])
BASE = NetworkSpec(defaults=LinkSpec(rate="1Gbit", rtt="10ms"))


def refusal(tmp_path: Path, text: str) -> str:
    (tmp_path / "net.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as info:
        load_profile("net.toml", base=tmp_path).resolve(PARTIES)
    return str(info.value)


def test_shipped_profiles_are_listed() -> None:
    assert list_profiles() == ALL


@pytest.mark.parametrize("name", ALL)
def test_every_profile_is_complete(name: str) -> None:
    spec = load_profile(name)
    assert spec.title and spec.description and spec.source
    topology = spec.resolve(PARTIES)
    assert len(topology.links) == 20
    assert set(topology.routes()) == set(topology.links)


def test_figures_of_profiles() -> None:
    lan = load_profile("lan-5g").resolve(PARTIES).links
    assert lan["server0", "server1"] == LinkConfig(rate=5 * 10**9, delay=100_000)
    assert lan["dealer", "server0"] == lan["server0", "server1"]
    assert lan["user", "server1"].delay == 10_000_000
    wan = load_profile("wan-100m").resolve(("server1", "server0")).links
    assert wan == {
        ("server1", "server0"): LinkConfig(rate=10**8, delay=20_000_000),
        ("server0", "server1"): LinkConfig(rate=10**8, delay=20_000_000),
    }
    ideal = load_profile("ideal").resolve(PARTIES).links
    assert set(ideal.values()) == {LinkConfig(rate=None, delay=0)}


def test_single_links_refine_sections() -> None:
    spec = NetworkSpec(
        defaults=LinkSpec(rate="1Gbit", rtt="10ms", host="1us"),
        dealer=LinkSpec(delay="3ms"),
        links={"server1-server0": LinkSpec(rate="2Gbit"), "server0->server1": LinkSpec(delay="1ms")},
    )
    links = spec.resolve(("server0", "server1", "dealer")).links
    assert links["server0", "server1"] == LinkConfig(rate=2 * 10**9, delay=1_000_000, host=1000)
    assert links["server1", "server0"] == LinkConfig(rate=2 * 10**9, delay=5_000_000, host=1000)
    assert links["dealer", "server1"] == LinkConfig(rate=10**9, delay=3_000_000, host=1000)


def test_merge_replaces_rtt_by_delay_and_back() -> None:
    """With both kept, a scenario that sets `delay` over a profile's `rtt` would be refused."""
    assert merge(BASE, NetworkSpec(defaults=LinkSpec(delay="1ms"))).defaults == LinkSpec(
        rate="1Gbit", delay="1ms"
    )
    back = merge(NetworkSpec(defaults=LinkSpec(delay="1ms")), NetworkSpec(defaults=LinkSpec(rtt="8ms")))
    assert back.defaults == LinkSpec(rtt="8ms")


def test_merged_two_way_link_wins_over_the_profiles_one_way_link() -> None:
    profile = merge(BASE, NetworkSpec(links={"server0->server1": LinkSpec(rate="1Mbit", delay="9ms")}))
    links = (
        merge(profile, NetworkSpec(links={"server0-server1": LinkSpec(rate="3Mbit")})).resolve(PARTIES).links
    )
    assert links["server0", "server1"] == LinkConfig(rate=3 * 10**6, delay=9_000_000)
    assert links["server1", "server0"] == LinkConfig(rate=3 * 10**6, delay=5_000_000)


@pytest.mark.parametrize("name", ALL)
def test_merging_nothing_changes_nothing(name: str) -> None:
    spec = load_profile(name)
    assert merge(spec, NetworkSpec()) == spec


def test_router_takes_the_place_of_the_mesh() -> None:
    spec = NetworkSpec(
        defaults=LinkSpec(rate="1Gbit", delay="1ms"),
        links={"server0-hub": LinkSpec(), "server1-hub": LinkSpec()},
        routers=("hub",),
    )
    topology = spec.resolve(("server0", "server1", "dealer"))
    assert ("server0", "server1") not in topology.links
    assert topology.routes()["server0", "server1"] == ("server0", "hub", "server1")
    assert topology.routes()["dealer", "server1"] == ("dealer", "server1")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[defaults]\nrate = "5gbps"', ["net.toml: defaults.rate: ", "'5gbps'", "tc reads", "5Gbit"]),
        ("[user]\nrate = 5", ["net.toml: user.rate: ", "'5'", "no unit"]),
        (
            '[user]\nrtts = "1ms"',
            ["net.toml: user.rtts: unknown key; did you mean 'rtt'?", "packet_overhead"],
        ),
        ("[sever]", ["net.toml: sever: unknown key; ", "did you mean 'user'?", "defaults"]),
        ('[links."a b"]', ['links."a b" must be']),
        ('[links."server0-server2"]', ["unknown party 'server2'; did you mean 'server1'?"]),
        ('[links."server0->server1"]\nrtt = "1ms"', ['links."server0->server1"', "one direction", "delay"]),
        ('[links."user-dealer"]\n[links."dealer-user"]', ["name the same link"]),
        ('[links."user-user"]', ["to itself"]),
        (
            '[links."user-dealer"]\nhots = "1ms"',
            ["net.toml: links.user-dealer.hots: unknown key; did you mean 'host'?"],
        ),
        ('[dealer]\nrtt = "1ms"\ndelay = "1ms"', ["net.toml: dealer: ", "one-way", "there and back"]),
        ('[dealer]\nrtt = "1ns"', ["whole numbers of ns"]),
        ('[dealer]\ntransport = "tpc"', ["net.toml: dealer.transport", "'tpc'", "accepted: ideal"]),
        ('[dealer]\nmss = "0B"', ["dealer.mss", "'0B'"]),
        ("[dealer]\nhost = true", ["dealer.host", "True"]),
        ("title = 3", ["net.toml: title: ", "text", "3"]),
        ('[defaults]\nrate = "1Gbit"', ["link user->server0 has no latency"]),
        ("title = ", ["not valid TOML"]),
    ],
)
def test_refusals_name_file_key_value_and_what_is_accepted(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    message = refusal(tmp_path, text)
    assert [part for part in parts if part not in message] == [], message


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, '[user]\nrate = "x"\n[dealer]\nrate = "y"')
    assert [line.split(": ")[1] for line in message.splitlines()] == ["user.rate", "dealer.rate"]


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown network profile 'lan5g'; did you mean 'lan-5g'"):
        load_profile("lan5g")
    with pytest.raises(InputError, match=r"none\.toml cannot be read: No such file"):
        load_profile("none.toml", base=tmp_path)
    with pytest.raises(InputError, match="unknown party 'server2'; did you mean 'server"):
        BASE.resolve(("server0", "server2"))
    with pytest.raises(InputError, match="unknown network profile"):
        load_profile("../networks/lan-5g")


def test_errors_inside_a_schema_that_embeds_a_network() -> None:
    class Scenario(BaseModel):
        network: NetworkSpec | None = None
        more: list[LinkSpec] = []

    with pytest.raises(ValidationError) as info:
        Scenario.model_validate(
            {"network": {"links": {"user-dealer": {"ratee": 1}}}, "more": [{}, {"dely": 1}]}
        )
    lines = str(explain(info.value, "s.toml", Scenario)).splitlines()
    assert lines[0].startswith("s.toml: network.links.user-dealer.ratee: unknown key; did you mean 'rate'?")
    assert lines[1].startswith("s.toml: more[1].dely: unknown key; did you mean 'delay'?")


def test_the_command_shows_every_setting_of_the_shipped_profiles(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broke if a profile's window or loss did not show beside its rate."""
    monkeypatch.setenv("COLUMNS", "100")
    show_networks(as_json=False)
    printed = capsys.readouterr().out
    assert "wan-100m-tcp, between servers: window 3MiB, initial_window 10, idle_reset never" in printed
    assert "gloo, ideal" in printed
    show_networks(as_json=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["networks"]}
    assert rows["wan-100m-tcp"]["defaults"]["window"] == "3MiB"
