"""What a message adds to its payload on the wire. Nowhere else are a message's wire bytes counted."""

from __future__ import annotations

import struct

__all__ = [
    "FRAME_BYTES",
    "FRAME_LAYOUT",
    "framed_bytes",
    "gloo_framed_bytes",
    "gloo_segments",
    "wire_bytes",
]

FRAME_LAYOUT = "<BBHIQQII"
"""Fields of the frame header, little endian and unpadded.

version (1 byte), phase (1), source party (2), op path (4), strand (8), payload length (8), step within the
strand (4), CRC-32 of the payload (4).
"""

FRAME_BYTES = struct.calcsize(FRAME_LAYOUT)
"""Bytes of the frame header before every payload: 32."""

_WORD = 8
_GLOO_FRAMES = 144  # bytes of headers gloo sends for a segment: measured on two ranks
_GLOO_CHUNK = 2**21  # bytes of a buffer that gloo puts into one segment of each rank


def framed_bytes(payload: int) -> int:
    """Return the bytes of a message with `payload` bytes and its frame header."""
    return payload + FRAME_BYTES


def wire_bytes(payload: int, mss: int, packet_overhead: int) -> int:
    """Return the bytes one message occupies on a link: payload, frame header and the overhead of its packets.

    `payload` is the buffer's bytes, `mss` the bytes of message a packet carries, `packet_overhead` the bytes
    of link, network and transport headers around each packet. An empty payload still takes one packet.
    """
    framed = framed_bytes(payload)
    return framed + -(-framed // mss) * packet_overhead


def gloo_segments(payload: int) -> int:
    """Return how many segments that are not empty gloo's all-reduce between two ranks cuts a buffer into.

    Measured: 2 max(2, ceil(T / 2 MiB)) segments of equal length in whole 64-bit words for T bytes.
    """
    total = max(1, -(-payload // _WORD)) * _WORD
    count = 2 * max(2, -(-total // _GLOO_CHUNK))
    length = -(-total // (count * _WORD)) * _WORD
    return -(-total // length)


def gloo_framed_bytes(payload: int) -> int:
    """Return the bytes a rank sends in an all-reduce of `payload` bytes: whole words and gloo's own frames."""
    return max(1, -(-payload // _WORD)) * _WORD + _GLOO_FRAMES * gloo_segments(payload)
