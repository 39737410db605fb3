"""Rates, durations, sizes and ratios as text: exact integers inside, figures with units outside.

Nothing here passes through a float, so what a user writes is what the simulation computes with. A figure
without its unit is refused, because every tool reads bare numbers differently.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NewType

from comet_sim.errors import InputError

__all__ = [
    "SECOND",
    "BitRate",
    "Bytes",
    "Nanos",
    "exact_duration",
    "exact_rate",
    "exact_size",
    "format_count",
    "format_duration",
    "format_rate",
    "format_size",
    "parse_duration",
    "parse_rate",
    "parse_ratio",
    "parse_size",
]

Nanos = NewType("Nanos", int)
"""Virtual time or a duration, ns."""
Bytes = NewType("Bytes", int)
"""A size, bytes."""
BitRate = NewType("BitRate", int)
"""A rate, bit/s."""

SECOND = 10**9
"""Nanoseconds of a second."""

_LIMIT = 2**62  # sums of two still fit the 64-bit columns of a trace

_QUANTITY = re.compile(
    r"\s*([+-]?)([0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?)\s*(\D*?)\s*", re.ASCII
)

_DURATIONS = {
    "ns": 1,
    "us": 10**3,
    "\N{MICRO SIGN}s": 10**3,
    "\N{GREEK SMALL LETTER MU}s": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_SIZES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_PREFIXES = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "m": 10**6,
    "M": 10**6,
    "g": 10**9,
    "G": 10**9,
    "t": 10**12,
    "T": 10**12,
}
_BIT = re.compile(r"([kKmMgGtT]?)bit(?:/s|ps)?")
_UPPER_BPS = re.compile(r"([KMGT])bps")
_LOWER_BPS = re.compile(r"([kmgt]?)bps")

_SHOWN_DURATIONS = (
    ("ns", 1),
    ("us", 10**3),
    ("ms", 10**6),
    ("s", 10**9),
    ("min", 60 * 10**9),
    ("h", 3600 * 10**9),
)
_SHOWN_SIZES = (("B", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12))
_SHOWN_RATES = (("bit/s", 1), ("kbit/s", 10**3), ("Mbit/s", 10**6), ("Gbit/s", 10**9), ("Tbit/s", 10**12))
_SHOWN_COUNTS = (("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12))


def parse_rate(text: str) -> BitRate:
    """Return the rate written in `text`, in bit/s.

    Accepts `5Gbit`, `5Gbit/s` and `5Gbps` (K, M, G, T; all bits, decimal). Raises `InputError` on bare
    numbers, on `gbps` in lower case, which tc reads as bytes and other tools as bits, and below 1 bit/s.
    """
    number, unit = _quantity(text, "rate", "a rate such as 5Gbit or 100Mbit")
    shown = text.strip()
    if not unit:
        raise InputError(
            f"rate {shown!r} has no unit: it could mean {shown} bit/s (as in ns-3 or tc) or {shown} Mbit/s "
            f"(as in many papers); write {shown}bit or {shown}Mbit"
        )
    lower = _LOWER_BPS.fullmatch(unit)
    if lower:
        prefix = lower[1].upper()
        digits = shown.removesuffix(unit).rstrip()
        raise InputError(
            f"rate {shown!r} is ambiguous: tc reads {unit} as {prefix}byte/s, ns-3 and most papers mean "
            f"{prefix}bit/s; write {digits}{prefix}bit for bits, or eight times the figure for bytes"
        )
    match = _BIT.fullmatch(unit) or _UPPER_BPS.fullmatch(unit)
    if not match:
        raise InputError(
            f"rate {shown!r} has the unknown unit {unit!r}; write bits, as in 5Gbit, 100Mbit or 64kbit"
        )
    value = _whole(number * _PREFIXES[match[1]], f"rate {shown!r}", "bit/s")
    if not value:
        raise InputError(f"rate {shown!r} must be above zero: at 0 bit/s nothing would ever arrive")
    return BitRate(value)


def parse_duration(text: str) -> Nanos:
    """Return the duration written in `text`, in ns.

    Accepts ns, us, ms, s, min and h. Raises `InputError` on a bare number (also on `0`), a negative value and
    anything that is no whole number of nanoseconds.
    """
    return Nanos(_scaled(text, "duration", _DURATIONS, "ms", "ns"))


def parse_size(text: str) -> Bytes:
    """Return the size written in `text`, in bytes.

    Accepts B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024). Raises `InputError` on
    a bare number, a negative value and anything that is no whole number of bytes.
    """
    return Bytes(_scaled(text, "size", _SIZES, "B", "B"))


def parse_ratio(text: str) -> Fraction:
    """Return the ratio written in `text`, exactly, between 0 and 1.

    Accepts a percentage (`0.1%`) or a plain decimal (`0.001`). Raises `InputError` on anything else.
    """
    number, unit = _quantity(text, "ratio", "a ratio such as 0.1% or 0.001")
    if unit not in ("", "%"):
        raise InputError(f"ratio {text.strip()!r} has the unknown unit {unit!r}; write 0.1% or 0.001")
    value = number / 100 if unit else number
    if value > 1:
        raise InputError(f"ratio {text.strip()!r} is above 1 (100%)")
    return value


def format_duration(ns: int) -> str:
    """Return a duration for people, three significant digits: `1.23 ms`."""
    return _shown(ns, _SHOWN_DURATIONS)


def format_rate(bits: int) -> str:
    """Return a rate for people, three significant digits: `5 Gbit/s`."""
    return _shown(bits, _SHOWN_RATES)


def format_size(size: int) -> str:
    """Return a size for people, three significant digits, powers of 1000: `1.23 MB`."""
    return _shown(size, _SHOWN_SIZES)


def format_count(count: int) -> str:
    """Return a count for people, three significant digits: `734 k`."""
    return _shown(count, _SHOWN_COUNTS)


def exact_duration(ns: int) -> str:
    """Return a duration without rounding, which `parse_duration` reads back: `1.234567ms`."""
    return _exact(ns, _SHOWN_DURATIONS[:4])


def exact_rate(bits: int) -> str:
    """Return a rate without rounding, which `parse_rate` reads back: `2.5Gbit`."""
    return _exact(bits, _SHOWN_RATES).removesuffix("/s")


def exact_size(size: int) -> str:
    """Return a size without rounding, which `parse_size` reads back: `1.5kB`."""
    return _exact(size, _SHOWN_SIZES)


def _quantity(text: str, what: str, accepted: str) -> tuple[Fraction, str]:
    """Split `text` into an exact number that is not negative and the unit that follows it."""
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise InputError(f"{what} {text.strip()!r} is not a number and a unit; write {accepted}")
    if match[1] == "-":
        raise InputError(f"{what} {text.strip()!r} is negative; write {accepted}")
    return Fraction(match[2]), match[3]


def _scaled(text: str, what: str, units: dict[str, int], usual: str, smallest: str) -> int:
    names = ", ".join(name for name in units if name.isascii())
    number, unit = _quantity(text, what, f"a number and one of {names}, such as 10{usual}")
    shown = text.strip()
    if not unit:
        raise InputError(
            f"{what} {shown!r} has no unit; write for instance {shown}{usual} (accepted: {names})"
        )
    if unit not in units:
        raise InputError(f"{what} {shown!r} has the unknown unit {unit!r}; accepted: {names}")
    return _whole(number * units[unit], f"{what} {shown!r}", smallest)


def _whole(value: Fraction, what: str, unit: str) -> int:
    if value.denominator != 1:
        raise InputError(f"{what} is not a whole number of {unit}, the finest step of the simulation")
    if value >= _LIMIT:
        raise InputError(f"{what} is too large: the largest value is 2^62 - 1 {unit}")
    return value.numerator


def _shown(value: int, ladder: tuple[tuple[str, int], ...]) -> str:
    if value < 0:
        return "-" + _shown(-value, ladder)
    last = len(ladder) - 1
    rung = max((i for i, (_, scale) in enumerate(ladder) if value >= scale), default=0)
    while True:
        unit, scale = ladder[rung]
        digits = _three_digits(value, scale)
        # 999.9 us rounds up to 1000 us: show it as 1 ms
        if rung < last and Fraction(digits) * scale >= ladder[rung + 1][1]:
            rung += 1
            continue
        return f"{digits} {unit}".rstrip()


def _three_digits(value: int, scale: int) -> str:
    """Return value/scale with three significant digits, half rounded up; whole numbers stay as they are."""
    if value % scale == 0 and value // scale < 1000:
        return str(value // scale)
    whole = value // scale
    places = 2 if whole < 10 else 1 if whole < 100 else 0
    factor: int = 10**places
    scaled = (2 * value * factor + scale) // (2 * scale)
    if places and scaled >= 1000:  # 9.999 has become 10.00
        scaled, places = (scaled + 5) // 10, places - 1
    text = str(scaled)
    return f"{text[:-places]}.{text[-places:]}" if places else text


def _exact(value: int, ladder: tuple[tuple[str, int], ...]) -> str:
    unit, scale = next(((unit, scale) for unit, scale in reversed(ladder) if value >= scale), ladder[0])
    whole, rest = divmod(value, scale)
    if not rest:
        return f"{whole}{unit}"
    digits = str(rest).rjust(len(str(scale)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}{unit}"
