"""Every setting of a link as text: what it becomes, what takes the place of what, what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from comet_sim.errors import InputError
from comet_sim.network import LinkConfig
from comet_sim.network.profiles import PARTIES, LinkSpec, NetworkSpec, load_profile, merge
from comet_sim.network.traces import read_trace
from comet_sim.scenario import dump, load_scenario, scenario_from_dict
from comet_sim.scenario.schema import NetworkChoice

BASE = LinkSpec(rate="1Gbit", rtt="10ms")
STEPS = [{"at": "1s", "rate": "10Mbit"}]
EVERYTHING: dict[str, Any] = {
    "transport": "tcp-segments",
    "jitter": "2ms",
    "loss": "0.1%",
    "queue": "256KiB",
    "outages": [{"start": "2s", "end": "2.5s"}, {"start": "4s", "end": "5s"}],
    "rate_steps": STEPS,
    "classes": 2,
    "window": "1MiB",
    "initial_window": 4,
    "idle_reset": "200ms",
}


def config(base: LinkSpec = BASE, **given: Any) -> LinkConfig:
    return LinkSpec(**given).over(base).config("link")


def refusal(tmp_path: Path, text: str) -> str:
    (tmp_path / "net.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as info:
        load_profile("net.toml", base=tmp_path).resolve(PARTIES)
    return str(info.value)


def test_every_setting_in_integers() -> None:
    assert config(**EVERYTHING) == LinkConfig(
        10**9,
        5_000_000,
        transport="tcp-segments",
        jitter=2_000_000,
        loss=Fraction(1, 1000),
        queue=2**18,
        outages=((2 * 10**9, 25 * 10**8), (4 * 10**9, 5 * 10**9)),
        rate_steps=((10**9, 10**7),),
        classes=2,
        window=2**20,
        initial_window=4,
        idle_reset=200_000_000,
    )


def test_every_setting_can_be_unset_by_a_more_specific_section() -> None:
    off = {
        "transport": "ideal",
        "jitter": "0ms",
        "loss": "0%",
        "queue": "unlimited",
        "outages": [],
        "rate_steps": [],
        "classes": 1,
    }
    assert config(LinkSpec(**EVERYTHING).over(BASE), **off) == LinkConfig(10**9, 5_000_000)
    assert config(LinkSpec(**EVERYTHING).over(BASE), idle_reset="never").idle_reset is None


def test_what_the_line_does_is_not_dropped_with_the_transport() -> None:
    """Broke if changing the transport of a lossy link silently made it a clean one."""
    lossy = LinkSpec(transport="tcp-segments", loss="1%", window="1MiB").over(BASE)
    with pytest.raises(
        InputError, match="link: transport 'tcp' cannot honour loss; transports that do: ideal"
    ):
        config(lossy, transport="tcp")
    assert config(lossy, transport="ideal").loss == Fraction(1, 100)


def test_rates_steps_and_traces_take_each_others_place(tmp_path: Path) -> None:
    trace = tmp_path / "line.up"
    trace.write_text("1\n5\n", encoding="utf-8")
    stepped = LinkSpec(rate_steps=STEPS).over(BASE)
    assert config(stepped, trace=str(trace)) == LinkConfig(None, 5_000_000, trace=(1, 5))
    assert config(stepped, rate="2Gbit") == LinkConfig(2 * 10**9, 5_000_000)
    assert config(stepped, jitter="1ms").rate_steps == ((10**9, 10**7),)
    assert config(LinkSpec(trace=str(trace), delay="0ms"), rate="2Gbit", rate_steps=STEPS).trace == ()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[dealer]\njitter = "5"', ["net.toml: dealer.jitter", "no unit"]),
        ('[dealer]\nloss = "100%"', ["dealer.loss", "nothing would ever arrive"]),
        ('[dealer]\nloss = "2"', ["dealer.loss", "above 1"]),
        ('[dealer]\nqueue = "many"', ["dealer.queue", "'many'"]),
        ("[dealer]\nclasses = 9", ["dealer.classes", "read 9", "8 or less"]),
        ('[dealer]\nclasses = "2"', ["dealer.classes", "'2'"]),
        ('[dealer]\nwindow = "0B"', ["dealer.window", "'0B'"]),
        ('[dealer]\nidle_reset = "0ms"', ["dealer.idle_reset", "'0ms'"]),
        ("[dealer]\ninitial_window = 0", ["dealer.initial_window", "1 or more"]),
        ('[[dealer.outages]]\nstart = "2s"\nend = "1s"', ["dealer.outages[0]", "must end after", "2s to 1s"]),
        ('[[dealer.outages]]\nstart = "2s"', ["dealer.outages[0].end", "missing"]),
        ('[[dealer.outages]]\nstart = "2s"\nends = "3s"', ["dealer.outages[0].ends", "did you mean 'end'?"]),
        ('[[dealer.rate_steps]]\nat = "2s"\nrate = "0bit"', ["dealer.rate_steps[0].rate", "above zero"]),
        ('[dealer]\ntrace = "none.up"', ["dealer.trace", "none.up cannot be read: No such file"]),
        ('[defaults]\nrate = "1Gbit"\ndelay = "1ms"\nqueue = "9kB"', ["cannot honour queue", "tcp-segments"]),
        (
            '[defaults]\nrate = "1Gbit"\ndelay = "1ms"\ntransport = "tcp"\njitter = "1ms"',
            [
                "link user->server0: transport 'tcp' cannot honour jitter; transports that do: ideal, tcp-segments"
            ],
        ),
        (
            '[defaults]\nrate = "unlimited"\ndelay = "1ms"\n[[defaults.rate_steps]]\nat = "1s"\nrate = "1Mbit"',
            ["rate_steps need a rate to start from"],
        ),
    ],
)
def test_refusals_name_file_key_value_and_what_is_accepted(
    tmp_path: Path, text: str, parts: list[str]
) -> None:
    message = refusal(tmp_path, text)
    assert [part for part in parts if part not in message] == [], message


def test_too_many_outages_are_refused(tmp_path: Path) -> None:
    text = "".join(f'[[dealer.outages]]\nstart = "{i}s"\nend = "{i}.5s"\n' for i in range(1001))
    assert "dealer.outages" in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 lines; accepted: 1 to"),
        (b"1\n2\nthree\n", r"line.up:3: read 'three'; accepted: a whole number of ms"),
        (b"1\n-2\n", r"line.up:2: read '-2'"),
        (b"1.5\n", r"line.up:1: read '1.5'"),
        (b"\xff\xfe", "line.up:1"),
        (b"3\n2\n", "2 ms comes after 3 ms"),
        (b"0\n0\n", "ends at 0 ms; accepted: 1 to"),
        (b"9" * 13, "ends at 9999999999999 ms"),
        (b"9" * 30, "line.up:1"),
        (b"1\n" * (2**20 + 1), "has 1,048,577 lines"),
        (b" " * (16 * 2**20 + 1), "has 16,777,217 bytes"),
    ],
)
def test_traces_that_are_none(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "line.up").write_bytes(content)
    with pytest.raises(InputError, match=said):
        read_trace(tmp_path / "line.up")


def test_a_trace_is_a_file(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "not a file"),
        (Path("a\0b"), "no path"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(InputError, match=said):
            read_trace(path)


def test_a_changed_trace_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "line.up"
    path.write_text("1\n2\n", encoding="utf-8")
    assert read_trace(path) == (1, 2)
    path.write_text("0\n0\n7\n\n", encoding="utf-8")
    assert read_trace(path) == (0, 0, 7)


def test_traces_are_found_beside_the_file_that_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broke if the path was taken from where the command happened to be started."""
    for folder, times in (("profiles", "3"), ("scenarios", "5"), ("here", "7")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "line.up").write_text(f"{times}\n", encoding="utf-8")
    (tmp_path / "profiles" / "net.toml").write_text(
        '[defaults]\ntrace = "line.up"\ndelay = "1ms"\n', encoding="utf-8"
    )
    scenario = tmp_path / "scenarios" / "one.toml"
    scenario.write_text(
        'model = "opt-demo"\nexecution = "shape"\nworkload = { prompt_tokens = 4, output_tokens = 1 }\n'
        '[network]\nprofile = "../profiles/net.toml"\n[network.user]\ntrace = "line.up"\n',
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path / "here")

    def traces(found: Any) -> list[tuple[int, ...]]:
        links = found.network.spec().resolve(PARTIES).links
        return [links[pair].trace for pair in (("server0", "server1"), ("user", "server0"))]

    loaded = load_scenario(scenario)
    assert traces(loaded) == [(3,), (5,)]
    assert traces(load_scenario(scenario, {"network.user.trace": "line.up"})) == [(3,), (7,)]
    assert traces(load_scenario(scenario, {"network.user.rate": "1Mbit"})) == [(3,), ()]
    kept = tmp_path / "kept.toml"
    kept.write_text(dump(loaded), encoding="utf-8")
    assert load_scenario(kept).resolved() == loaded.resolved()
    assert traces(load_scenario(kept)) == [(3,), (5,)]


def test_a_scenario_with_every_setting_reads_back_as_itself(tmp_path: Path) -> None:
    scenario = scenario_from_dict(
        {
            "model": "opt-demo",
            "execution": "shape",
            "workload": {"prompt_tokens": 4},
            "network": {
                "profile": "wan-100m-tcp",
                "user": {"loss": "1%", "transport": "ideal"},
                **EVERYTHING,
            },
        }
    )
    (tmp_path / "s.toml").write_text(dump(scenario), encoding="utf-8")
    again = load_scenario(tmp_path / "s.toml")
    topologies = [each.network.spec().resolve(PARTIES).links for each in (scenario, again)]
    assert topologies[0] == topologies[1]
    assert topologies[0]["server1", "server0"].outages == ((2 * 10**9, 25 * 10**8), (4 * 10**9, 5 * 10**9))
    assert topologies[0]["user", "server0"].loss == Fraction(1, 100)
    assert dump(again) == dump(scenario)


def test_scenarios_refuse_impossible_links_when_they_are_loaded() -> None:
    with pytest.raises(
        InputError, match="network: link server0->server1: transport 'gloo' cannot honour loss"
    ):
        scenario_from_dict(
            {
                "model": "opt-demo",
                "workload": {"prompt_tokens": 4},
                "network": {"transport": "gloo", "loss": "1%"},
            }
        )


def test_merging_keeps_the_order_of_precedence_for_shapes() -> None:
    profile = NetworkSpec(defaults=LinkSpec(**EVERYTHING).over(BASE))
    merged = merge(profile, NetworkSpec(defaults=LinkSpec(jitter="7ms"), user=LinkSpec(loss="0%")))
    links = merged.resolve(PARTIES).links
    assert {link.jitter for link in links.values()} == {7_000_000}
    assert links["user", "server0"].loss == 0
    assert links["server0", "server1"].loss == Fraction(1, 1000)


def test_the_same_network_twice_is_the_same() -> None:
    choice = NetworkChoice(profile="wan-100m-tcp", classes=2)
    assert choice.resolved().resolved() == choice.resolved()
