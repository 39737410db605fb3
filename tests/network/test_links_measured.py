"""Links against times measured on real TCP and gloo: tests/data, docs/links-validation.md."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]


@cache
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("validate_links", _ROOT / "tools" / "validate_links.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def tcp_ms(cell: Any) -> float:
    return float(cell.simulated_ms("tcp"))


def held() -> list[Any]:
    """The cells that `tcp` is held to: one way, CUBIC, 64 KiB and more, 10 and 40 ms."""
    return [
        cell
        for cell in tool().tcp_cells()
        if (cell.pattern, cell.control) == ("one-way", "cubic")
        and cell.size >= 65_536
        and cell.delay in (10**7, 4 * 10**7)
    ]


def test_the_measurements_are_all_there() -> None:
    assert len(tool().tcp_cells()) == 74
    assert len(tool().gloo_cells()) == 36
    assert len(held()) == 12


@pytest.mark.parametrize(
    "cell", held(), ids=lambda cell: f"{cell.rate // 10**6}-{cell.delay // 10**6}-{cell.size}"
)
def test_tcp_is_within_5_percent_one_way(cell: Any) -> None:
    assert tcp_ms(cell) == pytest.approx(cell.measured_ms, rel=0.05)


def test_latency_and_bandwidth_alone_would_not_do() -> None:
    """The closed form earns its keep: the plain line is far too fast for a cold message on a WAN."""
    cell = next(c for c in held() if (c.rate, c.delay, c.size) == (10**9, 4 * 10**7, 2**24))
    assert cell.simulated_ms("ideal") < 0.5 * cell.measured_ms


@pytest.mark.parametrize(
    "cell",
    [cell for cell in tool().gloo_cells() if cell.delay >= 10**7 and cell.elements <= 16_384],
    ids=lambda cell: f"{cell.op}-{cell.elements}-{cell.delay // 10**6}",
)
def test_gloo_is_within_10_percent(cell: Any) -> None:
    host = tool().gloo_host(cell, tool().gloo_cells())
    assert cell.simulated_ms(host) == pytest.approx(cell.measured_ms, rel=0.10)


def test_segments_have_a_median_error_of_at_most_5_percent_on_16_mb_exchanges() -> None:
    """The three cells that are worst in the page's table count as infinitely wrong: it saves their time."""
    cells = [
        cell
        for cell in tool().tcp_cells()
        if (cell.pattern, cell.control, cell.size) == ("exchange", "cubic", 2**24)
    ]
    assert len(cells) == 8
    skipped = {("tun", 10**8, 10**7), ("tun", 10**8, 10**5), ("tun", 10**9, 10**5)}
    errors = [
        float("inf")
        if (cell.emulator, cell.rate, cell.delay) in skipped
        else abs(tool().error(cell.simulated_ms("tcp-segments"), cell.measured_ms))
        for cell in cells
    ]
    assert median(errors) <= 0.05
    assert sum(error < 0.03 for error in errors) >= 4


def test_the_page_shows_what_the_simulation_gives() -> None:
    """Broke if a change to links left the published errors behind."""
    page = (_ROOT / "docs" / "links-validation.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| tun |", "| tbf |"))]
    assert len(rows) == len(tool().tcp_cells())
    for cell, row in zip(tool().tcp_cells(), rows, strict=True):
        assert row.startswith(tool().tcp_row(cell, tcp_ms(cell))), row
    assert tool().gloo_table() in page
