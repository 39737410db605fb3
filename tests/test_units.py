from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.units import (
    exact_duration,
    exact_rate,
    exact_size,
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_ratio,
    parse_size,
)

WHOLE = st.integers(min_value=0, max_value=2**62 - 1)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("5Gbit", 5 * 10**9),
        ("5Gbps", 5 * 10**9),
        ("5 Gbit/s", 5 * 10**9),
        (" 100Mbit ", 10**8),
        ("100Mbps", 10**8),
        ("64kbit", 64_000),
        ("64Kbps", 64_000),
        ("1.5Mbit", 1_500_000),
        ("1Tbit", 10**12),
        ("1bit", 1),
        ("0.1Mbit", 100_000),  # 0.1 * 10**6 in floats is exact by luck; 0.3 * 10**9 would not be
    ],
)
def test_rates_are_bits_and_exact(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["5gbps", "100mbps", "64kbps", "9600bps"])
def test_lower_case_bps_is_refused_with_both_readings(text: str) -> None:
    """Tc would run `gbps` eight times faster than ns-3's `Gbps`: a guess is off by 8."""
    with pytest.raises(
        InputError, match=r"tc reads \w+ as [KMG]?byte/s.*[KMG]?bit/s; write [0-9]+[KMG]?bit"
    ) as info:
        parse_rate(text)
    suggested = str(info.value).split("; write ")[1].split(" ")[0]
    assert parse_rate(suggested) > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "no unit.*5bit or 5Mbit"),
        ("0Gbit", "above zero"),
        ("-1Mbit", "negative"),
        ("0.5bit", "whole number"),
        ("5GB/s", "unknown unit 'GB/s'"),
        ("5Gibit", "unknown unit"),
        ("fast", "not a number"),
        ("", "not a number"),
        ("infGbit", "not a number"),
        ("1e30Gbit", "too large"),
    ],
)
def test_bad_rates(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_rate(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0ms", 0),
        ("1ns", 1),
        ("2us", 2000),
        ("2µs", 2000),
        ("2μs", 2000),
        ("0.2ms", 200000),
        ("10 ms", 10**7),
        ("1.5s", 1500000000),
        ("2min", 120 * 10**9),
        ("1h", 3600 * 10**9),
        ("1e-3s", 10**6),
    ],
)
def test_durations(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "0ms"),
        ("10", "10ms"),
        ("-1ms", "negative"),
        ("0.1ns", "whole number of ns"),
        ("10 MS", "unknown unit"),
        ("10m", "unknown unit 'm'"),
        ("1 2ms", "not a number and a unit|unknown unit"),
        ("1e9h", "too large"),
    ],
)
def test_bad_durations(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_duration(text)


def test_sizes() -> None:
    assert [parse_size(t) for t in ("1500B", "1kB", "3MiB", "0.5KiB", "1.5 GB")] == [
        1500,
        1000,
        3 << 20,
        512,
        1_500_000_000,
    ]
    for text in ("1500", "1500b", "1Mbit", "0.5B", "-1B", "1KB"):
        with pytest.raises(InputError):
            parse_size(text)


def test_ratios_are_exact() -> None:
    assert parse_ratio("0.1%") == parse_ratio("0.001") == parse_ratio("1e-3") == Fraction(1, 1000)
    assert parse_ratio("100%") == 1
    for text in ("101%", "1.5", "-1%", "0.1 %%", "1ms"):
        with pytest.raises(InputError):
            parse_ratio(text)


@given(WHOLE)
def test_exact_forms_are_read_back(value: int) -> None:
    assert parse_duration(exact_duration(value)) == value
    assert parse_size(exact_size(value)) == value
    if value:
        assert parse_rate(exact_rate(value)) == value


@given(WHOLE)
def test_shown_forms_keep_three_digits(value: int) -> None:
    """Also guards the carry: 999.9 us must not become `1000 us` or `1.000 ms`."""
    for show, parse in ((format_duration, parse_duration), (format_size, parse_size)):
        text = show(value)
        digits = text.split(" ")[0].replace(".", "")
        assert len(digits) <= 3 or text.endswith((" h", " TB"))
        # a shown value may round above the largest value that can be parsed
        assert value > 2**61 or 200 * abs(parse(text) - value) <= value


def test_shown_examples() -> None:
    shown = [
        format_duration(n) for n in (0, 999, 1000, 1_234_567, 999_949, 9_999_000, 61 * 10**9, 10**13, -1500)
    ]
    assert shown == [
        "0 ns",
        "999 ns",
        "1 us",
        "1.23 ms",
        "1.00 ms",
        "10.0 ms",
        "1.02 min",
        "2.78 h",
        "-1.50 us",
    ]
    assert (format_rate(5 * 10**9), format_size(1500), format_count(734_123)) == (
        "5 Gbit/s",
        "1.50 kB",
        "734 k",
    )
    assert (format_count(12), format_count(0)) == ("12", "0")


@given(st.text(max_size=4) | st.text("0123456789.eE+- GMKkitbpsnumB%/", max_size=10))
def test_any_text_is_read_or_refused_cleanly(text: str) -> None:
    for parse in (parse_rate, parse_duration, parse_size, parse_ratio):
        try:
            assert parse(text) >= 0
        except InputError as error:
            assert str(error)
