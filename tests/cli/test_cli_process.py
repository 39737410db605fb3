"""The command line as a process: start-up, streams and interrupts."""

import os
import signal
import subprocess
import sys
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_in_one_message_and_leaves_nothing_half_written(tmp_path, number):
    arguments = ("run", "demo", "--out", tmp_path, "--set", "workload.output_tokens=100")
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
