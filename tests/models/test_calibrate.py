from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.models.calibrate import GOOD_HIGH, GOOD_LOW, calibrate, choose_exponent, store_calibration
from comet_sim.models.demo import DEMO_NAMES, demo_folder, heldout, load_demo
from comet_sim.models.metadata import read_metadata
from comet_sim.models.plain import PlainDecoder


def _inverse_square_root(x: Any) -> Any:
    """CrypTen's approximation in floating point: initial value by its exponential, then 3 Newton steps."""
    y = (1 - (x / 2 + 0.2) / 256) ** 256 * 2.2 + 0.2 - x / 1024
    for _ in range(3):
        y = y * (3 - x * y * y) / 2
    return y


def test_good_range_is_where_the_approximation_is_good() -> None:
    inside = np.geomspace(GOOD_LOW, GOOD_HIGH, 4000)
    assert np.abs(_inverse_square_root(inside) * np.sqrt(inside) - 1).max() < 0.006
    outside = np.array([GOOD_LOW / 2, GOOD_HIGH * 1.3])
    assert (np.abs(_inverse_square_root(outside) * np.sqrt(outside) - 1) > 0.006).all()


def test_known_choices() -> None:
    assert choose_exponent(0.0025, 0.048) == 4  # opt-demo's first norm: garbage tokens without it
    assert choose_exponent(1.0, 62.0) == 0
    assert choose_exponent(1e4, 2e4) < 0


@given(st.floats(1e-9, 1e9), st.floats(1.0, 90.0))
def test_no_other_power_of_two_leaves_more_margin(low: float, spread: float) -> None:
    high = low * spread

    def margin(e: int) -> float:
        return min(4.0**e * low / GOOD_LOW, GOOD_HIGH / (4.0**e * high))

    e = choose_exponent(low, high)
    assert e == 0 or margin(e) >= max(margin(e - 1), margin(e + 1)) * (1 - 1e-9)
    assert e != 0 or margin(0) >= 2 or margin(0) >= max(margin(-1), margin(1)) * (1 - 1e-9)


@pytest.mark.parametrize("name", DEMO_NAMES)
def test_shipped_scales_hold_on_the_heldout_windows(name: str) -> None:
    """The scales are public and fixed: no held-out token may leave the range they were chosen for."""
    demo, windows = load_demo(name), heldout()
    plain = PlainDecoder(demo.config, demo.weights)
    met = calibrate(plain, np.concatenate((windows.prose[:32], windows.code[:32]))).variances
    assert set(demo.metadata.norm_scales) == set(met)
    for norm, (low, high) in met.items():
        scale = 4.0 ** demo.metadata.norm_scales[norm]
        assert low * scale > GOOD_LOW, norm
        assert high * scale < GOOD_HIGH, norm


def test_ranges_too_wide_for_any_scale_are_reported_and_kept(tmp_path: Path) -> None:
    demo = load_demo()
    weights = dict(demo.weights)
    embed = weights["embed"].copy()
    embed[10] *= 1e3
    weights["embed"] = embed
    result = calibrate(PlainDecoder(demo.config, weights), [[9, 10, 11]])
    assert "layer0/attention/norm" in result.outside
    store_calibration(tmp_path / "comet_sim.json", result)
    metadata = read_metadata(tmp_path / "comet_sim.json", demo.config)
    assert metadata.norms_outside == result.outside
    assert metadata.norm_scales == result.exponents


def test_nothing_to_calibrate_on() -> None:
    demo = load_demo()
    plain = PlainDecoder(demo.config, demo.weights)
    with pytest.raises(InputError, match="no token windows"):
        calibrate(plain, [])
    flat = PlainDecoder(demo.config, {name: np.zeros_like(w) for name, w in demo.weights.items()})
    with pytest.raises(InputError, match="variance 0"):
        calibrate(flat, [[1, 2]])


def test_exponents_that_a_checkpoint_may_not_have_are_refused() -> None:
    """What broke: exponents beyond -30 to 30 were written, and the folder did not load any more."""
    demo = load_demo()
    tables = {name: demo.weights[name].astype(np.float64) * 1e-10 for name in ("embed", "positions")}
    with pytest.raises(
        InputError, match=r"layer0/attention/norm: .* 2\^3\d; accepted: exponents from -30 to 30"
    ):
        calibrate(PlainDecoder(demo.config, {**demo.weights, **tables}), [[9, 10, 11]])


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["calibrate", *arguments])
    monkeypatch.delitem(sys.modules, "comet_sim.models.calibrate", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("comet_sim.models.calibrate", run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.parametrize("name", DEMO_NAMES)
def test_command_reproduces_the_shipped_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(demo_folder(name), tmp_path / name))
    shipped = json.loads((folder / "comet_sim.json").read_text())
    (folder / "comet_sim.json").write_text(json.dumps({"head_thresholds": shipped["head_thresholds"]}))
    assert _run(monkeypatch, str(folder)) == 0
    written = json.loads((folder / "comet_sim.json").read_text())
    assert written["norm_scales"] == shipped["norm_scales"]
    for norm, pair in shipped[
        "norm_variances"
    ].items():  # rounded to 3 digits, the last may differ by machine
        assert written["norm_variances"][norm] == pytest.approx(pair, rel=0.01)
    assert f"scale 2^{shipped['norm_scales']['layer0/attention/norm']}" in capsys.readouterr().out
    text = tmp_path / "text.txt"
    text.write_text("In the beginning was the word. " * 100)
    assert _run(monkeypatch, str(folder), "--text", str(text)) == 0


def test_command_reports_bad_input(
    saved_opt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        assert _run(monkeypatch, *arguments) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ") and len(message.splitlines()) == 1
        return message

    assert "no tokenizer.json" in said(str(saved_opt))
    folder = Path(shutil.copytree(demo_folder(), tmp_path / "opt-demo"))
    before = (folder / "comet_sim.json").read_bytes()
    short = tmp_path / "short.txt"
    short.write_text("In the beginning.")
    assert f"{short}: 6 tokens of text, accepted: 128 or more" in said(str(folder), "--text", str(short))
    assert "not readable as UTF-8 text" in said(str(folder), "--text", str(tmp_path))

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    assert f"{folder / 'comet_sim.json'}: cannot be written: Permission denied" in said(str(folder))
    assert (folder / "comet_sim.json").read_bytes() == before
