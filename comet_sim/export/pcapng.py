"""Packets that the messages would make on a wire, as a pcapng file: headers only, an interface a link direction.

Each message is cut into TCP segments of 1,448 bytes, spread evenly over the time it is on the line. What is kept of a
packet is its Ethernet, IPv4 and TCP header; its length on the wire is kept. Contents are never written.
"""

from __future__ import annotations

import struct
from typing import IO

import numpy as np
from numpy.typing import NDArray

from comet_sim.errors import InputError
from comet_sim.network.framing import FRAME_BYTES
from comet_sim.trace import Trace
from comet_sim.trace.columns import Ints, codes, ints

__all__ = ["SEGMENT", "write_pcapng"]

SEGMENT = 1448
"""Bytes of message in a packet: an MTU of 1500 less IPv4 and TCP headers with timestamps, as Linux sends."""

_MOST = 20_000_000
_HEADERS = 54
_COLUMNS = ("src", "dst", "payload", "created", "queued", "host", "stall", "serialise")
_PACKET = np.dtype(
    [
        ("block", "<u4"), ("length", "<u4"), ("interface", "<u4"), ("high", "<u4"), ("low", "<u4"),
        ("captured", "<u4"), ("original", "<u4"),
        ("to", "V6"), ("from", "V6"), ("ethertype", ">u2"),
        ("version", "u1"), ("service", "u1"), ("total", ">u2"), ("id", ">u2"), ("fragment", ">u2"),
        ("ttl", "u1"), ("protocol", "u1"), ("checksum", ">u2"), ("source", ">u4"), ("target", ">u4"),
        ("source_port", ">u2"), ("target_port", ">u2"), ("sequence", ">u4"), ("acknowledged", ">u4"),
        ("offset", "u1"), ("flags", "u1"), ("window", ">u2"), ("tcp_checksum", ">u2"), ("urgent", ">u2"),
        ("padding", "V2"), ("again", "<u4"),
    ]
)  # fmt: skip


def write_pcapng(trace: Trace, file: IO[bytes]) -> None:
    """Write the packets of a trace's messages, in the order of time; raises InputError for more than 20 million."""
    total = sum(
        int(_segments(ints(block, "payload")).sum()) for block in trace.blocks("messages", ("payload",))
    )
    if total > _MOST:
        raise InputError(
            f"{total:,} packets of messages; accepted: at most {_MOST:,}; choose with --phase, --link, --op or "
            "--token"
        )
    parties = trace.parties
    links = _links(trace)
    file.write(_block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))
    for link in links:
        file.write(_interface(" -> ".join(link)))
    sent = np.zeros(len(links), np.int64)
    for rows in trace.blocks("messages", _COLUMNS):
        if not len(rows):
            continue
        src, sources = codes(rows, "src")
        dst, targets = codes(rows, "dst")
        place = {link: number for number, link in enumerate(links)}
        pairs = src * len(targets) + dst
        known, inverse = np.unique(pairs, return_inverse=True)
        named = [(sources[key // len(targets)], targets[key % len(targets)]) for key in known.tolist()]
        placed = np.array([place[pair] for pair in named], np.int64)[inverse]
        start = np.asarray(sum(ints(rows, part) for part in ("created", "queued", "host", "stall")), np.int64)
        framed = ints(rows, "payload") + FRAME_BYTES
        file.write(_packets(placed, start, ints(rows, "serialise"), framed, sent, links, parties).tobytes())


def _segments(payload: Ints) -> Ints:
    return -(-(payload + FRAME_BYTES) // SEGMENT)


def _links(trace: Trace) -> list[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for rows in trace.blocks("messages", ("src", "dst")):
        src, sources = codes(rows, "src")
        dst, targets = codes(rows, "dst")
        if len(rows):
            for key in np.unique(src * len(targets) + dst).tolist():
                found.add((sources[key // len(targets)], targets[key % len(targets)]))
    return sorted(found)


def _packets(
    link: Ints,
    start: Ints,
    serialise: Ints,
    framed: Ints,
    sent: Ints,
    links: list[tuple[str, str]],
    parties: list[str],
) -> NDArray[np.void]:
    """Return the packets of some messages; `sent` holds the bytes each link has carried, and is advanced."""
    count = -(-framed // SEGMENT)
    message = np.repeat(np.arange(len(framed)), count)
    number = np.arange(len(message)) - np.repeat(np.cumsum(count) - count, count)
    size = np.minimum(SEGMENT, framed[message] - number * SEGMENT)
    end = start[message] + serialise[message] * (number + 1) // count[message]
    offset = np.zeros(len(framed), np.int64)
    for each in range(len(links)):
        mine = link == each
        before = np.cumsum(framed[mine])
        offset[mine] = sent[each] + before - framed[mine]
        sent[each] += int(framed[mine].sum())
    packet = np.zeros(len(message), _PACKET)
    packet["block"], packet["length"], packet["again"] = 6, _PACKET.itemsize, _PACKET.itemsize
    packet["interface"] = link[message]
    packet["high"], packet["low"] = end >> 32, end & 0xFFFFFFFF
    packet["captured"], packet["original"] = _HEADERS, _HEADERS + size
    hosts = {name: number for number, name in enumerate(parties)}
    ends = np.array([[hosts[src], hosts[dst]] for src, dst in links], np.int64).reshape(-1, 2)[link[message]]
    addresses = np.array([bytes((2, 0, 0, 0, 0, host + 1)) for host in range(len(parties))], "V6")
    packet["from"], packet["to"] = addresses[ends[:, 0]], addresses[ends[:, 1]]
    packet["ethertype"], packet["version"], packet["ttl"], packet["protocol"] = 0x0800, 0x45, 64, 6
    packet["total"], packet["fragment"] = 40 + size, 0x4000
    packet["source"], packet["target"] = 0x0A000001 + ends[:, 0], 0x0A000001 + ends[:, 1]
    packet["checksum"] = _checksum(packet)
    low, high = np.minimum(ends[:, 0], ends[:, 1]), np.maximum(ends[:, 0], ends[:, 1])
    packet["source_port"], packet["target_port"] = 9000 + low * 64 + high, 9000 + low * 64 + high
    packet["sequence"] = (offset[message] + number * SEGMENT) & 0xFFFFFFFF
    packet["offset"], packet["flags"], packet["window"] = 0x50, 0x18, 0xFFFF
    order = np.argsort(end, kind="stable")
    return packet[order]


def _checksum(packet: NDArray[np.void]) -> NDArray[np.int64]:
    total = np.full(len(packet), 0x4500 + (64 << 8) + 6, np.int64)
    total += packet["total"].astype(np.int64) + packet["fragment"]
    for address in (packet["source"].astype(np.int64), packet["target"].astype(np.int64)):
        total += (address >> 16) + (address & 0xFFFF)
    total = (total & 0xFFFF) + (total >> 16)
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF


def _interface(name: str) -> bytes:
    text = name.encode()
    options = struct.pack("<HH", 2, len(text)) + text + bytes(-len(text) % 4)
    options += struct.pack("<HHB3x", 9, 1, 9)  # time stamps in ns
    return _block(1, struct.pack("<HHI", 1, 0, _HEADERS) + options + bytes(4))


def _block(kind: int, body: bytes) -> bytes:
    length = 12 + len(body)
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)
