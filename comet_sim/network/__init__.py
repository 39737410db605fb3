"""The emulated network: frames, link actors, routes and named profiles."""

from comet_sim.network.framing import FRAME_BYTES, wire_bytes
from comet_sim.network.link import Clock, Envelope, Link, LinkConfig
from comet_sim.network.topology import Network, Topology

__all__ = ["FRAME_BYTES", "Clock", "Envelope", "Link", "LinkConfig", "Network", "Topology", "wire_bytes"]
