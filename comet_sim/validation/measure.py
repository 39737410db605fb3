"""Runs cases in a real framework, in a Python of its own, and here; says where the two differ."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from comet_sim.errors import InputError
from comet_sim.testing import run_protocol
from comet_sim.validation.cases import Case

__all__ = ["Figures", "Outcome", "validate"]

_PROBE = Path(__file__).with_name("crypten_probe.py")
_INSTALL = (
    "python3.11 -m venv crypten-env; crypten-env/bin/pip install --no-deps crypten==0.4.1; crypten-env/bin/pip "
    "install torch==2.13.0 numpy pandas omegaconf pyyaml onnx tensorboard; then --python crypten-env/bin/python"
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one side needed: bytes a party sends, rounds, and the largest error against plain arithmetic."""

    bytes: int
    rounds: int
    error: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One operation on both sides."""

    op: str
    size: int
    real: Figures
    ours: Figures

    @property
    def equal(self) -> bool:
        """Whether bytes and rounds are the same; errors depend on the randomness drawn and are shown only."""
        return (self.real.bytes, self.real.rounds) == (self.ours.bytes, self.ours.rounds)


def validate(
    cases: Sequence[Case], size: int, *, python: str = sys.executable, seed: int = 0, timeout: float = 600
) -> list[Outcome]:
    """Run every case for a size in real CrypTen between two processes of `python`, and here.

    Raises InputError where that Python has no CrypTen, or when the processes fail or outlast `timeout` seconds.
    """
    operands = [case.inputs(size, seed) for case in cases]
    asked = {
        "cases": [
            {"op": case.op, "inputs": [each.tolist() for each in given]}
            for case, given in zip(cases, operands, strict=True)
        ]
    }
    rows = _probe(python, asked, timeout)
    if len(rows) != len(cases):
        raise InputError(f"{python}: CrypTen ended after {len(rows)} of {len(cases)} operations")
    found = []
    for case, given, row in zip(cases, operands, rows, strict=True):
        plain = case.plain(*given)
        run = run_protocol(case.program, *given, *case.arguments(), seed=seed)
        own = run.raw if case.integer else run.values
        real = Figures(round(row["bytes"]), round(row["rounds"]), _error(row["values"], plain))
        found.append(Outcome(case.op, size, real, Figures(run.bytes, run.rounds, _error(own, plain))))
    return found


def _error(values: ArrayLike, plain: ArrayLike) -> float:
    expected = np.asarray(plain, float)
    return float(np.abs(np.asarray(values, float).reshape(expected.shape) - expected).max())


def _probe(python: str, asked: dict[str, Any], timeout: float) -> list[dict[str, Any]]:
    """Return what the real framework's processes printed."""
    try:
        ended = subprocess.run(
            (python, str(_PROBE)),
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        raise InputError(f"--python {python}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"{python}: CrypTen did not end within {timeout:g} s") from None
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no word on stderr"])[-1]
        if "No module named" in last:
            raise InputError(f"{python}: {last}. CrypTen wants a Python of its own: {_INSTALL}")
        raise InputError(f"{python}: CrypTen failed: {last}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
