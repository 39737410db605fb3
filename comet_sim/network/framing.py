"""What a message adds to its payload on the wire. Nowhere else are a message's wire bytes counted."""

from __future__ import annotations

import struct

__all__ = ["FRAME_BYTES", "FRAME_LAYOUT", "wire_bytes"]

FRAME_LAYOUT = "<BBHIQQII"
"""Fields of the frame header, little endian and unpadded.

version (1 byte), phase (1), source party (2), op path (4), strand (8), payload length (8), step within the
strand (4), CRC-32 of the payload (4).
"""

FRAME_BYTES = struct.calcsize(FRAME_LAYOUT)
"""Bytes of the frame header before every payload: 32."""


def wire_bytes(payload: int, mss: int, packet_overhead: int) -> int:
    """Return the bytes one message occupies on a link: payload, frame header and the overhead of its packets.

    `payload` is the buffer's bytes, `mss` the bytes of message a packet carries, `packet_overhead` the bytes
    of link, network and transport headers around each packet. An empty payload still takes one packet.
    """
    framed = payload + FRAME_BYTES
    return framed + -(-framed // mss) * packet_overhead
