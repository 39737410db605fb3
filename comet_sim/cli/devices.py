"""`comet-sim devices` lists device profiles; `comet-sim calibrate` measures this machine and writes one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from comet_sim.actors import DeviceProfile
from comet_sim.cli.output import console, plain, print_json, show, table
from comet_sim.cli.pipes import reader_may_leave
from comet_sim.errors import InputError
from comet_sim.models.devices import DEVICES, device_file
from comet_sim.models.measure_device import Measured, Step, measure_device, step_count
from comet_sim.scenario import write_whole
from comet_sim.units import format_count, format_duration, format_size

__all__ = ["calibrate", "show_devices"]

_JSON_SCHEMA = 1


def show_devices(*, as_json: bool) -> None:
    """Print every shipped device, with the source of its figures."""
    if as_json:
        print_json({"schema": _JSON_SCHEMA, "devices": [_document(each) for each in DEVICES.values()]})
        return
    columns = ("name", "ring multiply-adds", "memory", "an operation", "source")
    shown = table("Devices (rates a second; an operation: fixed cost of each)", *columns, right=columns[1:4])
    for profile in DEVICES.values():
        shown.add_row(plain(profile.name), *_figures(profile), plain(profile.source))
    show(console(), shown)


def calibrate(out: Path, repeats: int, *, quiet: bool, as_json: bool) -> None:
    """Measure this machine, write its device file, and show how well the roofline fits what was measured."""
    if out.suffix != ".toml":
        raise InputError(f"--out {out}: a device file ends in .toml, so that a scenario can name it")
    if not out.parent.is_dir():
        raise InputError(f"--out {out}: no such folder {str(out.parent)!r}")
    if out.exists() and not os.access(out, os.W_OK):
        raise InputError(f"--out {out}: cannot be written")

    def progress(step: Step, number: int) -> None:
        line = f"calibrate: {number}/{step_count()}, {step.what}: {format_duration(step.time)}"
        with reader_may_leave(sys.stderr):
            print(line, file=sys.stderr)

    measured = measure_device(out.stem, repeats, None if quiet else progress)
    comments = ("A device of a comet-sim scenario: [compute] device = ...", *_comments(measured))
    try:
        write_whole(out, device_file(measured.profile, comments))
    except OSError as error:
        raise InputError(f"--out {out}: {error.strerror or error}") from None
    _show(measured, out, as_json=as_json)


def _comments(measured: Measured) -> list[str]:
    return [f"{step.what}: {step.time} ns" for step in measured.steps]


def _show(measured: Measured, out: Path, *, as_json: bool) -> None:
    profile = measured.profile
    modelled = [(step, profile.cost(step.ring_ops, step.moved, 1)) for step in measured.steps]
    if as_json:
        steps = [
            {
                "what": step.what,
                "ring_multiply_adds": step.ring_ops,
                "memory_bytes": step.moved,
                "measured_ns": step.time,
                "modelled_ns": time,
            }
            for step, time in modelled
        ]
        print_json(
            {"schema": _JSON_SCHEMA, "file": str(out), "device": _document(profile), "measured": steps}
        )
        return
    columns = ("what", "measured", "modelled", "ratio")
    shown = table(
        "This machine (modelled: time the device file gives the same work)", *columns, right=columns[1:]
    )
    for step, time in modelled:
        ratio = f"{time / step.time:.2f}"
        shown.add_row(plain(step.what), format_duration(step.time), format_duration(time), ratio)
    screen = console()
    show(screen, shown)
    rate, memory, launch = _figures(profile)
    screen.print(plain(f"{rate} ring multiply-adds a second, {memory} a second, {launch} an operation"))
    screen.print(plain(f"wrote {out}; use it as [compute] device = {str(out)!r}"), soft_wrap=True)


def _figures(profile: DeviceProfile) -> tuple[str, str, str]:
    rates = format_count(profile.ring_ops), format_size(profile.memory)
    shown = [
        text if rate else "unlimited"
        for text, rate in zip(rates, (profile.ring_ops, profile.memory), strict=True)
    ]
    return shown[0], shown[1], format_duration(profile.launch)


def _document(profile: DeviceProfile) -> dict[str, object]:
    return {
        "name": profile.name,
        "ring_multiply_adds_per_second": profile.ring_ops,
        "memory_bytes_per_second": profile.memory,
        "launch_ns": profile.launch,
        "source": profile.source,
    }
