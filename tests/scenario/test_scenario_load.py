"""Scenario files: what is read, what is refused and how the refusal reads."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.models.demo import demo_folder
from comet_sim.network.profiles import list_profiles
from comet_sim.scenario import (
    dump,
    json_schema,
    load_scenario,
    parse_override,
    scenario_dir,
    scenario_from_dict,
    shipped_scenarios,
)
from comet_sim.scenario.source import key_lines
from comet_sim.scenario.toml import write_table

SMALL = """\
title = "small"
model = "opt-demo"          # a comment = with an equals sign

[workload]
prompt_tokens = 4
output_tokens = 2

[network.links."server0-server1"]
rate = "1Gbit"

[[systems]]
name = "dense"

[[systems]]
name = "crypten-accurate"
"""


@pytest.fixture
def write(tmp_path):
    def writer(text: str) -> Path:
        path = tmp_path / "small.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return writer


@pytest.mark.parametrize("name", shipped_scenarios())
def test_shipped_scenarios_load_and_say_which_question_they_answer(name):
    assert load_scenario(name).title
    text = (scenario_dir() / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("#:schema ") and "?" in text.split("title")[0]


def test_shipped_schema_is_current():
    stored = json.loads((scenario_dir() / "schema.json").read_text(encoding="utf-8"))
    assert stored == json_schema(), "run `comet-sim schema --write scenarios/schema.json`"


def test_every_key_of_the_schema_is_described():
    def undescribed(node, where):
        for key, value in node.get("properties", {}).items():
            # Profiles' own keys and references to tables, which carry their own description.
            if "description" not in value and "$ref" not in value and "allOf" not in value:
                yield f"{where}.{key}"

    schema = json_schema()
    tables = {"Scenario": schema, **schema["$defs"]}
    missing = [key for name, table in tables.items() for key in undescribed(table, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("old", "new", "line", "parts"),
    [
        ("output_tokens", "output_token", 6, ["workload.output_token", "unknown key", "'output_tokens'"]),
        ('"1Gbit"', '"1gbps"', 9, ["network.links.server0-server1.rate", "'1gbps'", "1Gbit"]),
        ('"1Gbit"', '"-1Gbit"', 9, ["rate", "'-1Gbit'", "negative"]),
        ('"1Gbit"', "1000", 9, ["rate", "'1000'"]),
        ('"dense"', '"pumma"', 12, ["systems[0].name", "'pumma'", "'puma'"]),
        ('"dense"', '"denze"', 12, ["systems[0].name", "'denze'", "did you mean 'dense'"]),
        ('"crypten-accurate"', '"dense"', 14, ["systems[1]", "twice"]),
        ('"opt-demo"', '"opt-dmo"', 2, ["model", "opt-dmo", "opt-demo"]),
        ('"opt-demo"', '"opt-6.7b"', 2, ["model", "only the shapes", "shape"]),
        ('"opt-demo"', '"./nowhere"', 2, ["model", "./nowhere", "no such folder"]),
        (
            "prompt_tokens = 4",
            "prompt_tokens = true",
            5,
            ["workload.prompt_tokens", "read true", "a whole number"],
        ),
        ("prompt_tokens = 4", "prompt_tokens = 0", 5, ["workload.prompt_tokens", "read 0;", "1 or more"]),
        ("prompt_tokens = 4", "prompt_tokens = 200", 5, ["workload.prompt_tokens", "200", "128"]),
        ("prompt_tokens = 4", "prompt_ids = [4, 9999]", 5, ["workload.prompt_ids[1]", "9999", "2047"]),
        ("prompt_tokens = 4", 'prompt_tokens = 4\nprompt = "a"', 4, ["workload", "exactly one of", "prompt"]),
        ("prompt_tokens = 4\n", "", 4, ["workload", "exactly one of", "none of them"]),
        ("output_tokens = 2", "output_tokens = 5000", 6, ["workload.output_tokens", "5004", "256 positions"]),
        ("[workload]", '[network]\nprofile = "lan"\n[workload]', 5, ["network.profile", "'lan'", "lan-5g"]),
        ("[workload]", '[compute]\ndevice = "gpu"\n[workload]', 5, ["compute.device", "'gpu'", "cpu"]),
    ],
)
def test_an_error_names_file_line_key_value_and_what_is_accepted(write, old, new, line, parts):
    path = write(SMALL.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:{line}: ")
    for part in parts:
        assert part in message


def test_every_problem_is_reported_at_once(write):
    path = write(SMALL.replace("output_tokens", "outputs").replace('"1Gbit"', '"1gbps"'))
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert len(str(caught.value).splitlines()) == 2


def test_missing_key_is_named(write):
    with pytest.raises(InputError, match=r"model: this key is required, but it is missing"):
        load_scenario(write(SMALL.replace('model = "opt-demo"', "")))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"title = \n", "not valid TOML"),
        (b"title = '\xff'", "not UTF-8"),
        (b"a = 1\na = 2", "not valid TOML"),
        ("title = 'x'".encode("utf-16"), "not UTF-8 text: .*; save it as UTF-8"),
    ],
)
def test_malformed_files(tmp_path, content, said):
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        load_scenario(path)


def test_a_byte_order_mark_is_no_part_of_a_scenario(tmp_path):
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_scenario(path).title == "small"
    own = (scenario_dir() / "networks" / "lan-1g.toml").read_bytes()
    (tmp_path / "own.toml").write_bytes(b"\xef\xbb\xbf" + own)
    assert load_scenario(path, {"network.profile": str(tmp_path / "own.toml")}).network.spec().title
    path.write_bytes(path.read_bytes().replace(b'"1Gbit"', b'"1gbps"'))
    with pytest.raises(InputError, match=r"windows\.toml:9: network\.links\.server0-server1\.rate"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"execution": "exac"}, "execution: read 'exac'; did you mean 'exact'? accepted: exact, shape"),
        ({"workload": "abc"}, "workload: read 'abc'; accepted: a table with keys of prompt, prompt_ids,"),
        ({"network": 3}, "network: read 3; accepted: a table with keys of rate, delay"),
        ({"title": 3}, "title: read 3; accepted: text, in quotes"),
        ({"systems": 3}, "systems: read 3; accepted: a list"),
        ({"systems": []}, "systems: read []; accepted: a list of 1 or more"),
        ({"systems.0": 3}, "systems.0: read 3; accepted: a table with keys of name, suite"),
        ({"seed": 1.5}, "seed: read 1.5; accepted: a whole number"),
        ({"seed": 2**63}, "seed: read 9223372036854775808; accepted: below 9223372036854775808"),
        ({"workload.batch": 0}, "workload.batch: read 0; accepted: 1 or more"),
        ({"workload.prompt": ""}, "workload.prompt: read ''; accepted: text of 1 character or more"),
        ({"workload.prompt_window": "poem-1"}, "workload.prompt_window: read 'poem-1'; accepted: prose- or"),
        ({"protocol.audit": "maybe"}, "protocol.audit: read 'maybe'; accepted: true or false"),
        ({"protocol.fraction_bits": 99}, "protocol.fraction_bits: read 99; accepted: 24 or less"),
        ({"compute": {"device": 1}}, "compute: compute.device: read 1; accepted: text, in quotes"),
        ({"title.x": 1}, "title.x: title is 'small', not a table"),
    ],
)
def test_messages_are_in_our_own_words(write, changes, said):
    with pytest.raises(InputError) as caught:
        load_scenario(write(SMALL), changes)
    message = str(caught.value)
    assert message.startswith(f"override {said}")
    assert "input should" not in message.lower() and "instance of" not in message


def test_a_long_value_is_shown_by_its_beginning(write):
    with pytest.raises(InputError) as caught:
        load_scenario(write(SMALL), {"seed": "x" * 10_000})
    assert "read 'xxxxx" in str(caught.value) and len(str(caught.value)) < 250


def test_values_of_numpy_and_paths_are_what_they_hold(write):
    changes = {
        "workload.prompt_ids": np.array([4, 5]),
        "workload.output_tokens": np.int64(3),
        "protocol.audit": np.bool_(False),
        "model": demo_folder(),
    }
    scenario = load_scenario(write(SMALL), changes)
    assert scenario.workload.prompt_ids == (4, 5) and scenario.workload.output_tokens == 3
    assert scenario.protocol.audit is False and scenario.model == str(demo_folder())
    table = {"model": "opt-demo", "workload": {"prompt_tokens": np.int64(4)}, "seed": np.uint8(7)}
    assert scenario_from_dict(table).seed == 7
    with pytest.raises(InputError, match=r"override seed: read 1\.5; accepted: a whole number"):
        load_scenario(write(SMALL), {"seed": np.float64(1.5)})


def test_missing_file_suggests_a_near_one(write):
    path = write(SMALL)
    with pytest.raises(InputError, match=r"no such file; did you mean .*small\.toml"):
        load_scenario(path.with_name("smal.toml"))
    with pytest.raises(InputError, match=r"did you mean 'demo'"):
        load_scenario("demmo")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"execution": "shape", "workload.stop": "eos"}, "workload.stop"),
        ({"execution": "shape", "workload.prompt_window": "code-1"}, "workload.prompt_window"),
        ({"execution": "shape", "model": "opt-1.3b", "workload.prompt": "text"}, "workload.prompt"),
        ({"workload.prompt_window": "prose-9000"}, "workload.prompt_window"),
        ({"workload.prompt": "x", "workload.prompt_window": "prose-0"}, "workload.prompt_window"),
        ({"systems.0.name": "crypten", "systems.0.suite": "crypten-accurate"}, "systems.0.suite"),
        ({"network.rtt": "1ms", "network.delay": "-1ms"}, "network.delay"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused(write, changes, key):
    with pytest.raises(InputError) as caught:
        load_scenario(write(SMALL), changes)
    assert f"{key}: " in str(caught.value)


def test_text_prompt_in_a_shape_run_counts_where_there_is_a_tokenizer(write):
    load_scenario(write(SMALL), {"execution": "shape", "workload.prompt": "Let there be light"})


def test_override_replaces_what_excludes_it(write):
    scenario = load_scenario(write(SMALL), {"workload.prompt": "Let there be light", "network.delay": "3ms"})
    assert scenario.workload.prompt_tokens is None
    assert scenario.network.spec().directed()["server0", "server1"].delay == "3ms"


def test_override_is_blamed_for_its_error(write):
    with pytest.raises(InputError, match=r"^override network\.rate: rate '5gbps' is ambiguous"):
        load_scenario(write(SMALL), {"network.rate": "5gbps"})
    with pytest.raises(InputError, match="no entry '7'; accepted: 0 to 1"):
        load_scenario(write(SMALL), {"systems.7.name": "dense"})
    with pytest.raises(InputError, match="'small', not a table"):
        load_scenario(write(SMALL), {"title.x.y": "dense"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("network.rate=5Gbit", ("network.rate", "5Gbit")),
        ("seed=7", ("seed", 7)),
        ('title="7"', ("title", "7")),
        ("workload.prompt=a = b\nc = 1", ("workload.prompt", "a = b\nc = 1")),
        ("workload.prompt=1\nc = 1", ("workload.prompt", "1\nc = 1")),
        ("workload.prompt_ids=[1, 2]", ("workload.prompt_ids", [1, 2])),
    ],
)
def test_override_values_are_toml_or_bare_text(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["seed", "=7", "a..b=7", "a b=7"])
def test_malformed_override(text):
    with pytest.raises(InputError, match="is not key=value"):
        parse_override(text)


def test_paths_in_a_file_are_relative_to_it(write, tmp_path, monkeypatch):
    (tmp_path / "net").mkdir()
    profile = (scenario_dir() / "networks" / "lan-1g.toml").read_text(encoding="utf-8")
    (tmp_path / "net" / "own.toml").write_text(profile, encoding="utf-8")
    path = write(SMALL.replace("[workload]", '[network]\nprofile = "net/own.toml"\n[workload]'))
    monkeypatch.chdir("/")
    assert load_scenario(path).network.profile == str(tmp_path / "net" / "own.toml")


@pytest.mark.parametrize("profile", list_profiles())
@pytest.mark.parametrize(
    "link",
    [
        {},
        {"rate": "1Mbit"},
        {"links": {"server0->server1": {"delay": "7ms"}, "user-server1": {"rate": "1kbit"}}},
    ],
)
def test_resolved_scenario_reads_back_as_the_same_network(profile, link):
    table = {"model": "opt-demo", "workload": {"prompt_tokens": 4}, "network": {"profile": profile, **link}}
    scenario = scenario_from_dict(table)
    again = scenario_from_dict(tomllib.loads(dump(scenario)))
    parties = ("user", "server0", "server1", "dealer", "owner")
    before, after = (each.network.spec().resolve(parties) for each in (scenario, again))
    for src in parties:
        for dst in parties:
            if src != dst:
                assert before.links[src, dst] == after.links[src, dst], (src, dst)
    assert dump(again) == dump(scenario)


def test_resolved_scenario_writes_defaults_out(write):
    table = tomllib.loads(dump(load_scenario(write(SMALL))))
    assert table["workload"]["prompt_window"] == "prose-0"
    assert table["network"]["profile"] == "lan-5g" and table["network"]["rate"] == "1Gbit"
    assert table["protocol"]["fraction_bits"] == 16 and table["seed"] == 0


def test_lines_of_keys():
    text = 'a = 1\n[b."c.d"]\ne.f = """\ng = 2\n"""\n[[h]]\ni = {j = 1}\n[[h]]\n[h.k]\nl = 1\n'
    lines = key_lines(text)
    assert lines == {
        ("a",): 1,
        ("b", "c.d"): 2,
        ("b", "c.d", "e"): 3,
        ("b", "c.d", "e", "f"): 3,
        ("h", 0): 6,
        ("h", 0, "i"): 7,
        ("h", 1): 8,
        ("h", 1, "k"): 9,
        ("h", 1, "k", "l"): 10,
    }


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.one_of(
    TEXTS, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.lists(st.integers(0, 9), max_size=3)
)
LEAVES = st.dictionaries(TEXTS, VALUES, min_size=1, max_size=3)
TABLES = st.recursive(
    LEAVES,
    lambda inner: st.dictionaries(TEXTS, st.one_of(VALUES, inner, st.lists(inner, min_size=1)), min_size=1),
    max_leaves=8,
)


@given(TABLES)
def test_written_toml_reads_back(table):
    assert tomllib.loads("\n".join(write_table(table))) == table
