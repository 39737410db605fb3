"""For tests of protocols: a harness that runs one protocol, and asserts on rounds, bytes, time and openings."""

from comet_sim.testing.asserts import assert_bytes, assert_reveals, assert_rounds, assert_time
from comet_sim.testing.harness import Bits, Integers, ProtocolRun, Public, default_topology, run_protocol

__all__ = [
    "Bits",
    "Integers",
    "ProtocolRun",
    "Public",
    "assert_bytes",
    "assert_reveals",
    "assert_rounds",
    "assert_time",
    "default_topology",
    "run_protocol",
]
