"""The network and the devices of a run in words, from the figures of its summary."""

from __future__ import annotations

from typing import Any

from comet_sim.units import format_duration, format_rate

__all__ = ["describe_devices", "describe_network"]

_USUAL = ("rate", "delay", "transport")
_UNUSUAL = {"mss": "packet payload", "host": "network stack"}
_DURATIONS = ("host", "jitter", "idle_reset")


def describe_network(network: dict[str, Any]) -> str:
    """Return the network between the servers in a line: profile, rate, RTT, and whatever is unusual."""
    ways: dict[str, dict[str, Any]] = network["servers"]
    rtt = network["rtt_ns"]
    latency = "" if rtt is None else f", RTT {format_duration(rtt)}"
    first, *others = ways.values()
    if all(way == first for way in others):
        return f"{network['profile']}: {_rate(first)}{latency} between the servers, {_links(first)}"
    said = (
        f"{name} {_rate(way)}, one way {format_duration(way['delay'])}, {_links(way)}"
        for name, way in ways.items()
    )
    return f"{network['profile']}{latency}: {'; '.join(said)}"


def describe_devices(summary: dict[str, Any]) -> str:
    """Return the device of all parties, and of those that have another one."""
    others = (f"{party} {name}" for party, name in summary.get("devices", {}).items())
    return ", ".join((f"device {summary['device']}", *others))


def _links(way: dict[str, Any]) -> str:
    unusual = (f"{_UNUSUAL.get(key, key)} {_setting(key, way[key])}" for key in way if key not in _USUAL)
    return ", ".join((f"{way['transport']} links", *unusual))


def _rate(direction: dict[str, Any]) -> str:
    rate = direction["rate"]
    if rate is None:
        return "rate of a trace" if "trace" in direction else "unlimited rate"
    return format_rate(rate)


def _setting(key: str, value: Any) -> str:
    return format_duration(value) if key in _DURATIONS and isinstance(value, int) else str(value)
