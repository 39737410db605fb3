"""Link actors by transport, and the one place where a link's class is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.link import GlooLink, Link
from comet_sim.network.segments import SegmentLink
from comet_sim.network.shaped import ShapedLink
from comet_sim.network.tcp import TcpLink

__all__ = ["LINK_CLASSES", "make_link"]

LINK_CLASSES: Mapping[str, type[Link]] = MappingProxyType(
    {"ideal": Link, "tcp": TcpLink, "tcp-segments": SegmentLink, "gloo": GlooLink}
)
"""Link actors by the name of their transport, on a line that is not shaped by chance or schedules."""


def make_link(
    clock: Clock, name: str, config: LinkConfig, deliver: Callable[[Envelope], object], seed: int = 0
) -> Link:
    """Return the actor for a link as configured; `seed` is the run's, from which the link derives its own."""
    if config.transport == "tcp-segments":
        return SegmentLink(clock, name, config, deliver, seed)
    if config.shaped:
        return ShapedLink(clock, name, config, deliver, seed)
    return LINK_CLASSES[config.transport](clock, name, config, deliver)
