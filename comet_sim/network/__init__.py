"""The emulated network: frames, link actors, transports, routes and named profiles."""

from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.framing import FRAME_BYTES, wire_bytes
from comet_sim.network.link import Link
from comet_sim.network.topology import Network, Topology
from comet_sim.network.transports import LINK_CLASSES, make_link

__all__ = [
    "FRAME_BYTES",
    "LINK_CLASSES",
    "Clock",
    "Envelope",
    "Link",
    "LinkConfig",
    "Network",
    "Topology",
    "make_link",
    "wire_bytes",
]
