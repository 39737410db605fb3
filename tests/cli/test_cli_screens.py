"""What the tables show on narrow screens, of strange texts, of the network that was used, of several systems."""

import io
import json
import re

import pytest
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.cli.describe import describe_network
from comet_sim.cli.output import console, print_json, show, table
from comet_sim.cli.report import show_summary, show_systems
from comet_sim.cli.safe import escaped, one_line
from comet_sim.scenario import scenario_from_dict
from comet_sim.simulation import simulate

TABLE = {
    "title": "two ways",
    "model": "opt-demo",
    "execution": "shape",
    "workload": {"prompt_tokens": 2, "output_tokens": 2},
    "systems": [{"name": "dense"}, {"name": "crypten-accurate"}],
}
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


def call(*arguments, code=0):
    found = CliRunner().invoke(app, [str(each) for each in arguments], prog_name="comet-sim")
    assert found.exit_code == code, found.output
    return found


def printed(width, print_on, *arguments):
    out = Console(file=io.StringIO(), width=width, highlight=False)
    print_on(out, *arguments)
    return out.file.getvalue()


@pytest.fixture(scope="module")
def summaries():
    scenario = scenario_from_dict(TABLE)
    return {system.label: simulate(scenario, system).summary for system in scenario.systems}


@pytest.mark.parametrize("width", [30, 40, 50, 60, 80, 120, 160])
def test_no_figure_is_cut_however_narrow_the_screen(summaries, width, tmp_path):
    """A figure that was broken in two, or ended in an ellipsis, would be missing from the words."""
    figure = re.compile(r"(?<=\s)\(?\d[\d,.]*(?:%|x\))?(?=\s)")
    for show_it, arguments in ((show_summary, (summaries["dense"], tmp_path)), (show_systems, (summaries,))):
        wide = printed(200, show_it, *arguments)
        narrow = printed(width, show_it, *arguments)
        assert max(map(len, narrow.splitlines())) <= width and "\N{HORIZONTAL ELLIPSIS}" not in narrow
        assert len(figure.findall(wide)) >= 20
        assert set(figure.findall(wide)) - set(figure.findall(narrow)) == set()


def sample():
    made = table("Sample", "what", "", "time", "bytes", right=("time", "bytes"))
    made.add_row(Text("attention of a layer"), Text("#######"), "123 ms", "4,567 B")
    made.add_row(Text("feed-forward"), Text("###"), "9 ms", "89 B")
    return made


def test_a_table_gives_up_bars_then_turns_then_becomes_lines():
    assert printed(60, show, sample()).splitlines()[1:] == [
        "what                             time    bytes",
        "attention of a layer  #######  123 ms  4,567 B",
        "feed-forward          ###        9 ms     89 B",
    ]
    assert printed(40, show, sample()).splitlines()[1:] == [
        "what                    time    bytes",
        "attention of a layer  123 ms  4,567 B",
        "feed-forward            9 ms     89 B",
    ]
    assert printed(30, show, sample()).splitlines()[1:3] == [
        "what             time    bytes",
        "attention of   123 ms  4,567 B",
    ]
    assert printed(24, show, sample()).splitlines()[1:] == [
        "attention of a layer",
        "  time 123 ms",
        "  bytes 4,567 B",
        "feed-forward",
        "  time 9 ms",
        "  bytes 89 B",
    ]
    turned = table("", "phase", "time", "bytes", "more", "most", right=("time", "bytes", "more", "most"))
    for name in ("one", "two"):
        turned.add_row(name, "1,234,567", "7", "89", "1,234,567")
    assert printed(30, show, turned).splitlines() == [
        "phase        one        two",
        "time   1,234,567  1,234,567",
        "bytes          7          7",
        "more          89         89",
        "most   1,234,567  1,234,567",
    ]


def test_who_sets_columns_decides_the_width(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == 120
    monkeypatch.setenv("COLUMNS", "60")
    assert console().width == 60


def test_the_report_says_what_was_used_not_what_the_title_says(tmp_path):
    changes = {"network.rate": "1Gbit", "network.rtt": "10ms", "compute.device": "a100"}
    options = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    small = [
        "--set",
        "execution=shape",
        "--set",
        "workload.prompt_tokens=1",
        "--set",
        "workload.output_tokens=1",
    ]
    shown = call("run", "demo", *options, *small, "--out", tmp_path, "-q").stdout
    assert "lan-5g: 1 Gbit/s, RTT 10 ms between the servers" in " ".join(shown.split())
    assert "device a100" in " ".join(shown.split())
    assert "overrides: network.rate=1Gbit, network.rtt=10ms, compute.device=a100" in " ".join(shown.split())
    assert "1 token in, 1 token out" in shown
    assert "16" not in shown.splitlines()[0] and "5 Gbit" not in shown
    (file,) = tmp_path.glob("demo/*/summary.json")
    summary = json.loads(file.read_text(encoding="utf-8"))
    way = {"rate": 10**9, "delay": 5_000_000, "transport": "ideal"}
    assert summary["network"] == {
        "profile": "lan-5g",
        "rtt_ns": 10_000_000,
        "servers": {"server0->server1": way, "server1->server0": way},
    }
    assert summary["device"] == "a100"


def test_networks_that_differ_by_direction_or_are_unusual():
    way = {"rate": 10**9, "delay": 5_000_000, "transport": "ideal"}
    odd = {"rate": None, "delay": 0, "transport": "gloo", "loss": "1%", "host": 50_000}
    both = {"profile": "p", "rtt_ns": 5_000_000, "servers": {"a->b": way, "b->a": odd}}
    assert describe_network(both) == (
        "p, RTT 5 ms: a->b 1 Gbit/s, one way 5 ms, ideal links; "
        "b->a unlimited rate, one way 0 ns, gloo links, loss 1%, network stack 50 us"
    )
    traced = {"rate": None, "delay": 0, "transport": "ideal", "trace": "9 entries"}
    same = {"profile": "p", "rtt_ns": 0, "servers": {"a->b": traced, "b->a": traced}}
    assert describe_network(same) == (
        "p: rate of a trace, RTT 0 ns between the servers, ideal links, trace 9 entries"
    )


def test_the_head_of_the_model_is_one_part(summaries):
    for summary in summaries.values():
        parts = [row["op"] for row in summary["where"]]
        assert [part for part in parts if part.startswith("token*/head")] == ["token*/head"]
        assert len(parts) == len(set(parts)) and "token*/layer*/ffn" in parts
        online = summary["phases"]["online"]
        assert sum(row["time_ns"] for row in summary["where"]) == online["time_ns"]
        assert sum(row["rounds"] for row in summary["where"]) == online["rounds"]
        between = online["links"]["server0->server1"]["payload"]
        assert sum(row["bytes"] for row in summary["where"]) <= between


def test_several_systems_are_shown_side_by_side(summaries):
    shown = printed(120, show_systems, summaries)
    dense, accurate = (summaries[name] for name in ("dense", "crypten-accurate"))
    rounds = [summary["phases"]["online"]["rounds"] for summary in (dense, accurate)]
    assert f"{rounds[0]:,} (1.00x)" in shown and f"{rounds[1]:,} ({rounds[1] / rounds[0]:.2f}x)" in shown
    for part in ("first token", "a token", "bytes", "rounds", "corrections", "dense", "crypten-accurate"):
        assert part in shown


def test_one_system_has_nothing_to_be_compared_with(tmp_path):
    small = [
        "--set",
        "execution=shape",
        "--set",
        "workload.prompt_tokens=1",
        "--set",
        "workload.output_tokens=1",
    ]
    several = ["--set", 'systems=[{name = "dense"}, {name = "crypten-accurate"}]']
    assert "Side by side" not in call("run", "demo", *small, "--out", tmp_path, "-q").stdout
    assert "Side by side" in call("run", "demo", *small, *several, "--out", tmp_path, "-q").stdout


def test_warnings_are_shown_with_the_results_and_in_json(tmp_path):
    odd = ["--set", "protocol.fraction_bits=24", "--set", "workload.prompt_tokens=1"]
    run = ["run", "demo", *odd, "--set", "workload.output_tokens=1", "--out", tmp_path, "-q"]
    shown = call(*run)
    assert "warning: protocol.fraction_bits is 24" in shown.stdout and shown.stderr == ""
    found = call(*run, "--json")
    (summary,) = json.loads(found.stdout)["systems"].values()
    assert "protocol.fraction_bits is 24" in summary["warnings"][0]
    assert found.stderr.startswith("warning: dense-crypten-accurate: protocol.fraction_bits is 24")
    usual = call("run", "demo", *odd[2:], "--set", "workload.output_tokens=1", "--out", tmp_path, "-q")
    assert "warning:" not in usual.output


def test_nothing_in_a_text_steers_the_terminal(tmp_path):
    evil = "a\\u001b[31mred\\u009b2J\\u202eb\\r\\u0007"
    options = ["--set", f'title="{evil}"', "--set", f'workload.prompt="{evil}\\nend"']
    shown = call("run", "demo", *options, "--set", "workload.output_tokens=1", "--out", tmp_path, "-q").stdout
    assert not STEERING.search(shown)
    assert r"a\x1b[31mred\x9b2J\u202eb\r\x07" in shown
    document = call(
        "run", "demo", *options, "--set", "workload.output_tokens=1", "--out", tmp_path, "-q", "--json"
    )
    assert not STEERING.search(document.stdout)
    assert json.loads(document.stdout)["title"] == json.loads(f'"{evil}"')
    message = call("run", "no\x1b[31m.toml", code=2).stderr
    assert message.startswith(r"error: scenario no\x1b[31m.toml")


def test_generated_text_is_shown_with_its_lines(summaries, tmp_path):
    said = {**summaries["dense"], "prompt": "a\tb\nc", "text": "\x1b[2J d\n", "token_ids": [1, 2]}
    shown = printed(80, show_summary, said, tmp_path)
    assert "a   b" in shown and r"\x1b[2J d" in shown and "\x1b" not in shown


def test_escaping():
    assert escaped("plain \N{GREEK SMALL LETTER MU} \N{GRINNING FACE}\nnext") == "plain μ 😀\nnext"
    assert one_line("a\nb\tc\x1b\x85\ud800\u2028") == r"a\nb\tc\x1b\x85\ud800\u2028"


def test_json_of_text_no_encoding_takes(capsys):
    print_json({"key": "half \ud800 \x7f \x9b ü"})
    out = capsys.readouterr().out
    assert r"half \ud800 \u007f \u009b ü" in out and json.loads(out) == {"key": "half \ud800 \x7f \x9b ü"}
