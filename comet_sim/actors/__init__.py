"""Actors: parties with mailbox, device and vault, and the strands their programs run on (the transport seam)."""

from comet_sim.actors.device import Device, DeviceProfile
from comet_sim.actors.party import Mailbox, Party, Vault, World, acting_party
from comet_sim.actors.strand import Scope, Strand

__all__ = ["Device", "DeviceProfile", "Mailbox", "Party", "Scope", "Strand", "Vault", "World", "acting_party"]
