"""What a run was really played on: the network between the servers, in integers, and the devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from itertools import pairwise
from typing import Any

from comet_sim.actors import DeviceProfile
from comet_sim.network import LinkConfig, Topology
from comet_sim.roles.plan import SERVERS

__all__ = ["device_facts", "network_facts"]

_ALWAYS = ("rate", "delay", "transport")
_SUMMED = ("delay", "host")


def network_facts(profile: str, topology: Topology) -> dict[str, Any]:
    """Return profile, RTT (ns, propagation alone) and both directions between the servers, JSON-able.

    A direction has its rate (bit/s, the least of its hops, null: unlimited), delay (ns, all hops), transport,
    and each other setting that is not the usual one, of the first hop that has it.
    """
    routes = topology.routes()
    pairs = (SERVERS, SERVERS[::-1])
    directions = {
        "->".join(pair): _direction([topology.links[hop] for hop in _hops(routes[pair])])
        for pair in pairs
        if pair in routes
    }
    rtt = sum(each["delay"] for each in directions.values()) if len(directions) == len(pairs) else None
    return {"profile": profile, "rtt_ns": rtt, "servers": directions}


def _hops(route: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(pairwise(route))


def _direction(hops: list[LinkConfig]) -> dict[str, Any]:
    rates = [hop.rate for hop in hops if hop.rate is not None]
    found: dict[str, Any] = {
        "rate": min(rates, default=None),
        "delay": sum(hop.delay for hop in hops),
        "transport": ", ".join(dict.fromkeys(hop.transport for hop in hops)),
    }
    for setting in fields(LinkConfig):
        values = [getattr(hop, setting.name) for hop in hops]
        unusual = [value for value in values if value != setting.default]
        if setting.name not in _ALWAYS and unusual:
            found[setting.name] = sum(values) if setting.name in _SUMMED else _plain(unusual[0])
    if len(hops) > 1:
        found["hops"] = len(hops)
    return found


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it: a trace, which may be long, by its length."""
    if isinstance(value, Fraction):
        return f"{float(100 * value):g}%"
    if isinstance(value, tuple):
        return f"{len(value)} entries"
    return value


def device_facts(usual: DeviceProfile, own: Mapping[str, DeviceProfile]) -> dict[str, Any]:
    """Return the device of all parties, of those with another one, and the figures of each, JSON-able."""
    others = {party: profile for party, profile in own.items() if profile != usual}
    profiles = {profile.name: profile for profile in (usual, *others.values())}
    return {
        "device": usual.name,
        "devices": {party: profile.name for party, profile in others.items()},
        "device_figures": {
            name: {
                "ring_multiply_adds_per_second": profile.ring_ops,
                "memory_bytes_per_second": profile.memory,
                "launch_ns": profile.launch,
            }
            for name, profile in profiles.items()
        },
    }
