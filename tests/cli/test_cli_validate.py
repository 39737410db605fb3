"""`comet-sim validate`: equal and different figures, a Python without the framework, one that fails.

What a real CrypTen sends is compared where a machine has one (`make validate`, in CI too).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from comet_sim.cli.app import app
from comet_sim.testing import run_protocol
from comet_sim.validation import CASES

OPS = ("square", "maximum")


def call(*arguments, code=0):
    words = ["validate", "crypten", *map(str, arguments)]
    # As wide whatever terminal, or none, the tests run in.
    found = CliRunner().invoke(app, words, prog_name="comet-sim", env={"COLUMNS": "120"})
    assert found.exit_code == code, found.output
    return found


def framework(folder: Path, *rows: dict[str, object], fail: str = "") -> Path:
    """Return a stand-in for a Python with CrypTen: it prints these rows whatever it is asked."""
    file = folder / "python"
    lines = "\n".join(json.dumps(row) for row in rows)
    file.write_text(
        f"#!{sys.executable}\nimport sys\nasked = sys.stdin.read()\nprint({lines!r})\n"
        f"open({str(folder / 'asked')!r}, 'w').write(asked)\nsys.exit({fail!r} or 0)\n"
    )
    file.chmod(0o755)
    return file


def rows(*changes: int) -> list[dict[str, object]]:
    """Return what the two operations need for size 4, off by so many bytes."""
    found = []
    for op, change in zip(OPS, changes, strict=True):
        case = next(case for case in CASES if case.op == op)
        plain = case.plain(*case.inputs(4, 0))
        run = run_protocol(case.program, *case.inputs(4, 0), *case.arguments(), exact=False)
        found.append({"bytes": run.bytes + change, "rounds": run.rounds, "values": (plain + 0.5).tolist()})
    return found


def options(python: Path) -> tuple[object, ...]:
    return ("--python", python, "--size", 4, *(part for op in OPS for part in ("--op", op)))


def test_equal_figures(tmp_path):
    shown = call(*options(framework(tmp_path, *rows(0, 0)))).stdout
    assert shown.count(" equal") == 3 and "2 of 2 equal in bytes and rounds" in shown
    assert "5.0e-01" in shown, "the framework's error is against plain arithmetic"
    asked = json.loads((tmp_path / "asked").read_text())["cases"]
    assert [each["op"] for each in asked] == list(OPS)
    assert np.shape(asked[1]["inputs"][0]) == (8, 4)


def test_a_difference_is_named_and_ends_in_1(tmp_path):
    found = json.loads(call(*options(framework(tmp_path, *rows(0, 8))), "--json", code=1).stdout)
    assert [each["equal"] for each in found["operations"]] == [True, False]
    assert found["schema"] == 1
    assert "DIFFERENT" in call(*options(framework(tmp_path, *rows(0, 8))), code=1).stdout


@pytest.mark.parametrize(
    ("rows_shown", "fail", "said"),
    [
        ([], "ModuleNotFoundError: No module named 'crypten'", "CrypTen wants a Python of its own"),
        ([], "RuntimeError: no network", "CrypTen failed: RuntimeError: no network"),
        ([{"bytes": 1, "rounds": 1, "values": [0]}], "", "CrypTen ended after 1 of 2 operations"),
    ],
)
def test_a_framework_that_is_missing_or_fails(tmp_path, rows_shown, fail, said):
    assert said in call(*options(framework(tmp_path, *rows_shown, fail=fail)), code=2).stderr


def test_bad_options(tmp_path):
    assert "did you mean 'softmax'" in call("--op", "softmx", code=2).stderr
    assert "No such file" in call("--op", "square", "--python", tmp_path / "none", code=2).stderr
    found = CliRunner().invoke(app, ["validate", "cryptn"])
    assert found.exit_code == 2 and "accepted: crypten" in found.output


@pytest.mark.skipif("CRYPTEN_PYTHON" not in os.environ, reason="CRYPTEN_PYTHON names no Python with CrypTen")
def test_real_crypten_needs_as_much():
    found = json.loads(
        call("--python", os.environ["CRYPTEN_PYTHON"], "--size", 5, "--size", 64, "--json").stdout
    )
    assert len(found["operations"]) == 2 * len(CASES) and all(each["equal"] for each in found["operations"])
    errors = {each["op"]: (each["real"]["error"], each["ours"]["error"]) for each in found["operations"]}
    # The same approximations are off by as much: what is computed is the same, not only what is sent.
    for op in ("exp", "log", "softmax", "square root"):
        real, ours = errors[op]
        assert real / 3 < ours < real * 3, op
