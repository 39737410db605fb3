"""The command line as a process: start-up, streams and interrupts."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import comet_sim

ROOT = Path(comet_sim.__file__).parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND = (sys.executable, "-m", "comet_sim")


def test_help_imports_nothing_heavy():
    found = subprocess.run(
        (sys.executable, "-X", "importtime", "-m", "comet_sim", "--help"),
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in found.stderr.splitlines()}
    assert "typer" in imported and "Usage: comet-sim" in found.stdout
    assert not imported & {"numpy", "pydantic", "pyarrow", "torch", "scipy", "networkx", "simpy"}


def test_no_colour_unless_a_terminal_wants_it(tmp_path):
    environment = {**ENVIRONMENT, "TERM": "xterm-256color"}
    environment.pop("FORCE_COLOR", None)
    found = subprocess.run((*COMMAND, "networks"), env=environment, capture_output=True, check=True)
    assert b"\x1b" not in found.stdout


def test_output_without_unicode(tmp_path):
    """Bars and boxes once ended a run in UnicodeEncodeError where stdout is ASCII."""
    arguments = ("run", "demo", "-q", "--set", "execution=shape", "--set", "workload.output_tokens=1")
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    found = subprocess.run((*COMMAND, *arguments, "--out", tmp_path), env=environment, capture_output=True)
    assert found.returncode == 0, found.stderr
    assert b"###" in found.stdout


# Online from the start, for long enough to be stopped there.
LONG = ("--set", "workload.output_tokens=100", "--set", "protocol.dealer=on-demand")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_in_one_message_and_leaves_nothing_half_written(tmp_path, number):
    arguments = ("run", "demo", "--out", tmp_path, *LONG)
    with subprocess.Popen(
        (*COMMAND, *arguments), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "online 0/" in line:
                break
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
    said = [line for line in rest.splitlines() if ": online " not in line]
    assert said == ["error: interrupted; nothing was kept"]
    assert list(tmp_path.iterdir()) == []


SHAPES = (
    "--set",
    "execution=shape",
    "--set",
    "workload.output_tokens=1",
    "--set",
    "workload.prompt_tokens=2",
)


# Online from the start, for long enough to be stopped there.
LONG = ("--set", "workload.output_tokens=100", "--set", "protocol.dealer=on-demand")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_imports_ends_in_one_line(tmp_path, number):
    """numpy's import, once interrupted, cannot be undone: there is nothing to clean up yet, so leave at once."""
    script = (
        "import os, signal, sys\n"
        "class Signaller:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == 'numpy.linalg': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Signaller())\n"
        f"sys.argv = ['comet-sim', 'run', 'demo', '--out', {str(tmp_path)!r}]\n"
        "from comet_sim.cli import main; main()\n"
    )
    found = subprocess.run((sys.executable, "-c", script), env=ENVIRONMENT, capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (130, "error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_polite_kill_works_where_ctrl_c_is_ignored(tmp_path):
    """Shells start jobs in the background with SIGINT ignored; SIGTERM once did nothing there.

    Later it raised in the middle of a party's step: with tasks complaining last, or a deadlock for a result.
    """
    script = (
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nfrom comet_sim.cli import main\nmain()"
    )
    arguments = ("run", "demo", "--out", tmp_path, *LONG)
    with subprocess.Popen(
        (sys.executable, "-c", script, *arguments), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "online 0/" in line:
                break
        time.sleep(0.15)  # into the arithmetic
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(timeout=60) == 130
    assert rest.splitlines()[-1] == "error: interrupted; nothing was kept" and "Traceback" not in rest
    assert list(tmp_path.iterdir()) == []


def closed_pipe(stream, *arguments, cwd):
    """Run a command whose stdout or stderr has no reader any more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            (*COMMAND, *arguments),
            env=ENVIRONMENT,
            cwd=cwd,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer},
        )
    finally:
        os.close(writer)


@pytest.mark.parametrize(
    "arguments",
    [
        ("networks",),
        ("models", "--json"),
        ("schema",),
        ("--help",),
        ("run", "--help"),
        ("run", "demo", *SHAPES, "-q"),
    ],
    ids=" ".join,
)
def test_a_reader_who_leaves_is_no_error(tmp_path, arguments):
    found = closed_pipe("stdout", *arguments, cwd=tmp_path)
    assert (found.returncode, found.stderr) == (0, b"")


def test_a_reader_who_leaves_does_not_hide_a_failed_check(tmp_path):
    script = (
        "import comet_sim.cli.check as check\ncheck.plain_generate = lambda *_: [(1,)]\n"
        "from comet_sim.cli import main\nmain()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ("run", "demo", "--check", "-q", *SHAPES[2:])
    found = subprocess.run(
        (sys.executable, "-c", script, *arguments), env=ENVIRONMENT, cwd=tmp_path, stdout=writer, stderr=-1
    )
    os.close(writer)
    assert (found.returncode, found.stderr) == (1, b"")


def test_a_run_goes_on_when_nobody_watches_its_progress(tmp_path):
    found = closed_pipe("stderr", "run", "demo", *SHAPES, cwd=tmp_path)
    assert found.returncode == 0 and b"trace digest" in found.stdout
    assert len(list((tmp_path / "runs/demo").glob("*/summary.json"))) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("arguments", [("networks",), ("schema",), ("models", "--json"), ("run", "--help")])
def test_output_that_cannot_be_written_is_one_line_and_1(arguments):
    with Path("/dev/full").open("w") as full:
        found = subprocess.run((*COMMAND, *arguments), env=ENVIRONMENT, stdout=full, stderr=-1, text=True)
    assert found.returncode == 1
    assert "No space left on device" in found.stderr and len(found.stderr.splitlines()) == 1
