"""The commands and their options; what they do is imported when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from comet_sim.cli.handler import HandledGroup
from comet_sim.cli.stopping import interruptible
from comet_sim.errors import InputError

__all__ = ["app"]

_EXIT_CODES = (
    "Exit codes: 0 ok; 1 a comparison failed, the machine refused something (disk full), or a bug; "
    "2 usage or scenario error; 3 deadlock; 4 ended by a simulated fault; 130 interrupted."
)

app = typer.Typer(
    cls=HandledGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document, with its schema version.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Replace a setting, such as network.rate=1Gbit. Repeatable."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"comet-sim {version('comet-sim')}")
        except PackageNotFoundError:
            print("comet-sim (source tree)")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of every error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Simulate private inference of language models under two-party secure computation."""


@app.command(epilog=_EXIT_CODES)
def run(
    file: Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one, such as demo.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system", metavar="NAME", help="Run only this one of the scenario's systems. Repeatable."
        ),
    ] = None,
    overrides: Set = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run folders are made.")] = Path(
        "runs"
    ),
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Compare the text with plain transformers, greedy; exit 1 if it differs."
        ),
    ] = False,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Run a scenario: text, time, traffic by party and phase, what was revealed; keep it in a run folder."""
    from comet_sim.cli.run import Reported, run_scenario

    playing = Reported(quiet=quiet)
    run_scenario(file, system or [], overrides or [], out, check=check, as_json=as_json, playing=playing)


@app.command(epilog=_EXIT_CODES)
def watch(
    file: Annotated[str, typer.Argument(help="A scenario file, or the name of a shipped one, such as demo.")],
    system: Annotated[
        list[str] | None,
        typer.Option(
            "--system", metavar="NAME", help="Run only this one of the scenario's systems. Repeatable."
        ),
    ] = None,
    overrides: Set = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where run folders are made.")] = Path(
        "runs"
    ),
    pace: Annotated[
        str,
        typer.Option(
            "--pace", help="max, or virtual seconds a second of wall clock, such as 0.1x. Keys change it."
        ),
    ] = "max",
    paused: Annotated[bool, typer.Option("--paused", help="Hold the run at its first message.")] = False,
    leave: Annotated[
        bool, typer.Option("--leave", help="Leave the screen when the run ends, without a key.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a scenario and watch it, round by round: who sends what to whom, why a round waits, what is skipped."""
    from comet_sim.cli.watch import watch_scenario

    watch_scenario(
        file, system or [], overrides or [], out, pace=pace, paused=paused, leave=leave, as_json=as_json
    )


@app.command(epilog=_EXIT_CODES)
def replay(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or one system's folder in it.")
    ],
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="Which system of the run.")
    ] = None,
    pace: Annotated[
        str,
        typer.Option(
            "--pace", help="auto (a minute), or virtual seconds a second of wall clock, such as 0.1x."
        ),
    ] = "auto",
) -> None:
    """Look at a finished run on the screen as `watch` shows it: forward, backward, to a time, token or op."""
    from comet_sim.cli.replay import replay_run

    replay_run(folder, system, pace)


@app.command(epilog=_EXIT_CODES)
def trace(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, or one system's folder in it.")
    ],
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="Which system of the run.")
    ] = None,
    rounds: Annotated[bool, typer.Option("--rounds", help="One row an exchange, in order of time.")] = False,
    top: Annotated[
        bool, typer.Option("--top", help="Operations by time, with bytes, rounds, compute.")
    ] = False,
    links: Annotated[bool, typer.Option("--links", help="Messages and bytes by phase and link.")] = False,
    reveals: Annotated[
        bool, typer.Option("--reveals", help="What was opened, and the dealer's part.")
    ] = False,
    critical: Annotated[
        bool,
        typer.Option(
            "--critical-path",
            help="Where the time of a phase went (online by default), and the slack around it.",
        ),
    ] = False,
    stalls: Annotated[
        bool, typer.Option("--stalls", help="Who waited for whom in a phase (online by default), how long.")
    ] = False,
    op: Annotated[
        str | None,
        typer.Option(
            "--op", metavar="GLOB", help="Keep op paths below this pattern, such as token0/*/ffn or **/relu."
        ),
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", metavar="A->B", help="Keep messages of one direction of a link.")
    ] = None,
    phase: Annotated[
        str | None, typer.Option("--phase", metavar="NAME", help="Keep set-up, offline or online.")
    ] = None,
    token: Annotated[
        int | None, typer.Option("--token", min=0, help="Keep one output token, from 0.")
    ] = None,
    layer: Annotated[int | None, typer.Option("--layer", min=0, help="Keep one layer, from 0.")] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, help="Components of an op path to tell apart.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most rows of a table.")] = 40,
    verify: Annotated[
        bool, typer.Option("--verify", help="Recompute the digest from the records first.")
    ] = False,
    diff: Annotated[
        Path | None,
        typer.Option(
            "--diff", metavar="RUN", help="Compare with another run, op by op: this one minus that."
        ),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(
            "--export",
            metavar="FORMAT",
            help="Write the trace as perfetto, chrome, pcapng or parquet (rounds).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The file that --export writes.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look into a run's trace: links, operations and reveals, or the views chosen below."""
    from comet_sim.cli.trace import Views, make_filter, show_trace
    from comet_sim.cli.trace_find import find_trace

    views = Views(rounds, top, links, critical, stalls, reveals, depth, limit)
    filters = make_filter(op, link, phase, token, layer)
    found = find_trace(folder, system)
    if export is not None or out is not None:
        from comet_sim.cli.trace_export import write_export

        with interruptible():
            write_export(found, filters, export, out, verify=verify)
    elif diff is not None:
        from comet_sim.cli.trace_difference import show_difference

        show_difference(found, find_trace(diff, system), filters, depth, limit, as_json=as_json)
    else:
        show_trace(found, filters, views, verify=verify, as_json=as_json)


@app.command(epilog=_EXIT_CODES)
def models(as_json: Json = False) -> None:
    """List the models a scenario may name."""
    from comet_sim.cli.catalogue import show_models

    show_models(as_json)


@app.command(epilog=_EXIT_CODES)
def networks(as_json: Json = False) -> None:
    """List the network profiles a scenario may name."""
    from comet_sim.cli.catalogue import show_networks

    show_networks(as_json)


@app.command(epilog=_EXIT_CODES)
def devices(as_json: Json = False) -> None:
    """List the devices a scenario may name: what local work takes."""
    from comet_sim.cli.devices import show_devices

    show_devices(as_json=as_json)


@app.command(epilog=_EXIT_CODES)
def calibrate(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The device file to write.")
    ] = Path("my-machine.toml"),
    repeats: Annotated[
        int,
        typer.Option("--repeats", min=1, max=1000, help="Times each thing is measured; the median counts."),
    ] = 9,
    as_json: Json = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measure this machine and write a device file that a scenario's compute.device may name; some seconds."""
    from comet_sim.cli.devices import calibrate as measure

    with interruptible():
        measure(out, repeats, quiet=quiet, as_json=as_json)


@app.command(epilog=_EXIT_CODES)
def schema(
    write: Annotated[Path | None, typer.Option("--write", metavar="FILE", help="Write it to a file.")] = None,
) -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from comet_sim.cli.catalogue import show_schema

    with interruptible():
        show_schema(write)


@app.command(epilog=_EXIT_CODES)
def init(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist yet.")] = Path(
        "scenario.toml"
    ),
) -> None:
    """Write a first scenario, with every setting explained."""
    from comet_sim.cli.catalogue import write_first_scenario

    with interruptible():
        write_first_scenario(file)


@app.command("train-demo-model", epilog=_EXIT_CODES)
def train_demo_model(
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="A new folder for the checkpoint.")],
    name: Annotated[
        str, typer.Argument(metavar="[opt-demo|reglu-llama-demo]", help="Which demo model.")
    ] = "opt-demo",
    steps: Annotated[
        int | None, typer.Option("--steps", help="Train this many steps instead of the recipe's.")
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option(
            "--text",
            metavar="FILE",
            help="Train on this file instead (.py: code). Repeatable; three at least.",
        ),
    ] = None,
    vocab: Annotated[
        int | None, typer.Option("--vocab", help="Tokens of the tokenizer, 2,048 if not given.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of weights, split and batches.")] = 0,
) -> None:
    """Train a demo model again, from texts that pip fetches; about ten minutes on two cores."""
    from comet_sim.cli.train import train

    with interruptible():
        train(name, out, steps, text or [], vocab, seed)


@app.command("train-predictor", epilog=_EXIT_CODES)
def train_predictor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A demo model, or a checkpoint folder.")],
    rank: Annotated[
        int, typer.Option("--rank", min=1, help="Width between the two layers, for neurons.")
    ] = 32,
    rank_heads: Annotated[int, typer.Option("--rank-heads", min=1, help="The same for heads.")] = 16,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="Train on this file instead (.py: code). Repeatable."),
    ] = None,
    windows: Annotated[
        int, typer.Option("--windows", min=20, help="Windows of 128 tokens to train on, at most.")
    ] = 1600,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The file to write; predictor.safetensors beside the model if not given.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of texts, weights and batches.")] = 0,
    lookahead: Annotated[
        bool, typer.Option("--lookahead", help="Predict neurons from the layer's input: predictor.lookahead.")
    ] = False,
) -> None:
    """Train the predictor of active neurons and heads that system comet needs; a minute or two."""
    from comet_sim.cli.predictor import train

    with interruptible():
        train(model, rank, rank_heads, text or [], windows, out, seed, lookahead=lookahead)


@app.command(epilog=_EXIT_CODES)
def accuracy(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A demo model, or a checkpoint folder.")],
    windows: Annotated[
        int, typer.Option("--windows", min=1, help="Most windows of 128 tokens of each domain.")
    ] = 32,
    predictor: Annotated[
        Path | None,
        typer.Option("--predictor", metavar="FILE", help="Another predictor than the one beside the model."),
    ] = None,
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="FILE", help="Measure on this file instead (.py: code). Repeatable."),
    ] = None,
    delta_ffn: Annotated[
        float | None, typer.Option("--delta-ffn", help="Threshold of neurons, in place of the predictor's.")
    ] = None,
    delta_heads: Annotated[
        float | None, typer.Option("--delta-heads", help="Threshold of heads, in place of the predictor's.")
    ] = None,
    lookahead: Annotated[
        bool, typer.Option("--lookahead", help="Measure the model's predictor that looks ahead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Perplexity and agreement with the plain model when neurons and heads are skipped, on held-out text."""
    from comet_sim.cli.predictor import show_accuracy

    with interruptible():
        show_accuracy(
            model,
            windows,
            predictor,
            text or [],
            (delta_ffn, delta_heads),
            lookahead=lookahead,
            as_json=as_json,
        )


@app.command("validate", epilog=_EXIT_CODES)
def validate_command(
    framework: Annotated[str, typer.Argument(metavar="crypten", help="The framework to run.")],
    python: Annotated[
        str | None,
        typer.Option(
            "--python", metavar="FILE", help="The Python that has the framework; else the one that runs this."
        ),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", metavar="NAME", help="Only this operation. Repeatable.")
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(
            "--size", min=1, max=10_000, help="Elements, or columns of 8 rows; 64 if not given. Repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a real framework on this machine and compare the bytes and rounds it needs; exit code 1 if they differ."""
    from comet_sim.cli.validate import validate_crypten

    if framework != "crypten":
        raise InputError(f"read {framework!r}; accepted: crypten")
    with interruptible():
        validate_crypten(python, op or [], size or [64], as_json=as_json)
