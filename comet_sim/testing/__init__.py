"""For tests of protocols: a harness that runs one protocol, and asserts on bytes, rounds and time."""

from comet_sim.testing.harness import Bits, Integers, ProtocolRun, Public, run_protocol

__all__ = ["Bits", "Integers", "ProtocolRun", "Public", "run_protocol"]
