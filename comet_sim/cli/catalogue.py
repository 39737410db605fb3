"""`comet-sim models`, `networks`, `schema` and `init`: what a scenario may say, and a first one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.cli.pipes import reader_may_leave
from comet_sim.errors import InputError
from comet_sim.units import exact_duration, format_count, parse_duration

__all__ = ["show_models", "show_networks", "show_schema", "write_first_scenario"]

_JSON_SCHEMA = 1


def show_models(as_json: bool) -> None:
    """Print every model a scenario may name."""
    from comet_sim.models.catalogue import list_models

    rows: list[dict[str, Any]] = [
        {
            "name": model.name,
            "weights": model.folder is not None,
            "architecture": model.config.architecture,
            "layers": model.config.layers,
            "hidden": model.config.hidden,
            "heads": model.config.heads,
            "kv_heads": model.config.kv_heads,
            "ffn": model.config.ffn,
            "activation": model.config.activation,
            "vocab": model.config.vocab,
            "positions": model.config.max_positions,
            "parameters": model.config.parameters,
        }
        for model in list_models()
    ]
    if as_json:
        print_json({"schema": _JSON_SCHEMA, "models": rows})
        return
    columns = ("name", "runs", "family", "activation")
    numbers = ("layers", "hidden", "heads", "FFN", "vocabulary", "positions", "parameters")
    shown = table("Models", *columns, *numbers, right=numbers)
    keys = ("layers", "hidden", "heads", "ffn", "vocab", "positions")
    for row in rows:
        runs = "exact, shape" if row["weights"] else "shape"
        kind = (row["name"], runs, row["architecture"], row["activation"])
        shown.add_row(*kind, *(f"{row[key]:,}" for key in keys), format_count(row["parameters"]))
    out = console()
    show(out, shown)
    out.print(
        "\nA folder with a transformers checkpoint (OPT, GPT-2 or Llama) runs too: write its path as the model."
    )


def show_networks(as_json: bool) -> None:
    """Print every network profile, with the links of the servers, the user and the dealer."""
    from comet_sim.network.profiles import list_profiles, load_profile

    profiles = {name: load_profile(name) for name in list_profiles()}
    if as_json:
        rows = [{"name": name, **spec.model_dump(exclude_none=True)} for name, spec in profiles.items()]
        print_json({"schema": _JSON_SCHEMA, "networks": rows})
        return
    columns = ("name", "between servers", "user", "dealer", "owner", "host", "transport")
    shown = table(
        "Network profiles (rate and RTT of each party's links; host: time a message takes in its sender)",
        *columns,
    )
    for name, spec in profiles.items():
        links = [each.over(spec.defaults) for each in (spec.defaults, spec.user, spec.dealer, spec.owner)]
        servers, *others = map(_link, links)
        shown.add_row(
            name,
            servers,
            *("same" if other == servers else other for other in others),
            _each(links, "host", "0ms"),
            _each(links, "transport", "ideal"),
        )
    out = console()
    show(out, shown)
    for name, spec in profiles.items():
        sections = {
            "between servers": spec.defaults,
            "user": spec.user,
            "dealer": spec.dealer,
            "owner": spec.owner,
        }
        more = {whose: _more(section) for whose, section in sections.items()}
        said = "; ".join(f"{whose}: {settings}" for whose, settings in more.items() if settings)
        if said:
            out.print(plain(f"{name}, {said}"), soft_wrap=True)


def _link(link: Any) -> str:
    rtt = link.rtt or exact_duration(2 * parse_duration(link.delay))
    return f"{link.rate or 'trace'}, {rtt}"


_SHOWN = {"rate", "delay", "rtt", "host", "transport", "mss", "packet_overhead"}


def _more(link: Any) -> str:
    """Return what a section of a profile sets beyond the table, lists by their length."""
    given = link.model_dump(exclude_none=True, exclude=_SHOWN)
    return ", ".join(
        f"{key} {len(value) if isinstance(value, tuple) else value}" for key, value in given.items()
    )


def _each(links: list[Any], setting: str, usual: str) -> str:
    """Return what a setting is for the links of a profile: once if it is the same for all."""
    return ", ".join(dict.fromkeys(getattr(link, setting) or usual for link in links))


def show_schema(write: Path | None) -> None:
    """Print the JSON Schema of scenarios, or write it to a file."""
    from comet_sim.scenario import json_schema, write_whole

    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if write is None:
        with reader_may_leave(sys.stdout):
            sys.stdout.write(text)
        return
    try:
        write_whole(write, text)
    except OSError as error:
        raise InputError(f"schema file {write} cannot be written: {error.strerror or error}") from None
    print(f"wrote {write}", file=sys.stderr)


def write_first_scenario(file: Path) -> None:
    """Write a commented scenario to a new file, whole or not at all."""
    from comet_sim.scenario import write_whole

    try:
        write_whole(file, _FIRST, new=True)
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror or error}") from None
    print(f"wrote {file}; run it with: comet-sim run {file}", file=sys.stderr)


_FIRST = """\
title = "My first scenario"
model = "opt-demo"                # a name `comet-sim models` lists, or a folder with a checkpoint
execution = "exact"               # exact: real shares, text comes out; shape: the same traffic without values
seed = 1                          # of all randomness; equal scenarios give equal results

[workload]
prompt = "In the beginning"       # or prompt_tokens = 16, or prompt_ids = [369, 269, 641]
output_tokens = 8
stop = "length"                   # or eos: also stop at the end-of-sequence token

[network]
profile = "lan-5g"                # `comet-sim networks` lists the names; or a path ending in .toml
# rate = "1Gbit"                  # refines the links between the servers
# rtt = "10ms"
# [network.user]                  # the user's links; also network.dealer, network.owner
# rtt = "30ms"
# [network.links."server0->server1"]
# rate = "100Mbit"

[compute]
device = "cpu"                    # how long local work takes: cpu, a100 (`comet-sim devices`), none, or a file

[protocol]
qkv = "fused"                     # fused | parallel | sequence
final_norm = "last"               # last | all rows
reveal = "user"                   # who learns the logits: user | servers
fraction_bits = 16                # of the fixed-point numbers, 8 to 24

[[systems]]                       # a run each; add more tables to run several
name = "dense"
suite = "crypten"                 # crypten | crypten-accurate (longer approximations)
"""
