"""`comet-sim validate`: what a real framework sends, beside what is sent here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict

import typer

from comet_sim.cli.output import console, print_json, show, table
from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion
from comet_sim.validation import CASES, Case, Outcome, validate

__all__ = ["validate_crypten"]

_JSON_SCHEMA = 1


def validate_crypten(python: str | None, ops: Sequence[str], sizes: Sequence[int], *, as_json: bool) -> None:
    """Run operations in real CrypTen and here; exit code 1 if bytes or rounds of any differ."""
    chosen = _chosen(ops)
    found: list[Outcome] = []
    for size in sizes:
        print(f"{len(chosen)} operations of size {size}: CrypTen between two processes", file=sys.stderr)
        found += validate(chosen, size, python=python or sys.executable)
    if as_json:
        rows = [asdict(each) | {"equal": each.equal} for each in found]
        print_json({"schema": _JSON_SCHEMA, "framework": "crypten", "operations": rows})
    else:
        _show(found)
    if not all(each.equal for each in found):
        raise typer.Exit(1)


def _chosen(ops: Sequence[str]) -> list[Case]:
    known = {case.op: case for case in CASES}
    for op in ops:
        if op not in known:
            raise InputError(f"--op {op}: no such operation; {suggestion(op, list(known))}")
    return [known[op] for op in ops] if ops else list(CASES)


def _show(found: list[Outcome]) -> None:
    sides = ("CrypTen", "here")
    numbers = ("size", *(f"{what}, {side}" for what in ("bytes", "rounds", "error") for side in sides))
    title = "CrypTen with its default settings on loopback; bytes as one party sends them"
    shown = table(title, "operation", *numbers, "", right=numbers)
    for each in found:
        shown.add_row(
            each.op,
            f"{each.size:,}",
            f"{each.real.bytes:,}",
            f"{each.ours.bytes:,}",
            str(each.real.rounds),
            str(each.ours.rounds),
            f"{each.real.error:.1e}",
            f"{each.ours.error:.1e}",
            "equal" if each.equal else "DIFFERENT",
        )
    screen = console()
    show(screen, shown)
    different = sum(not each.equal for each in found)
    screen.print(
        f"{len(found) - different} of {len(found)} equal in bytes and rounds; an error is the largest against plain "
        "arithmetic"
    )
