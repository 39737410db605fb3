"""Perfetto's own format: track events in protocol buffers, names interned, arrows as flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from comet_sim.errors import InputError
from comet_sim.export.causes import causes
from comet_sim.export.timeline import Counter, Timeline
from comet_sim.trace import Trace
from comet_sim.trace.columns import Ints

__all__ = ["write_perfetto"]

_SEQUENCE = 1
_CLEARED, _NEEDS = 1, 2  # flags of a packet: interned names begin here; it uses them
_FIELD = b"\x0a"  # field 1 of `Trace`, length-delimited: a packet
_GROUPS = {"party": (1, "work"), "link": (2, "links")}
_FIRST = 1_000
_PAYLOAD, _DEPTH = 1, 2


def write_perfetto(trace: Trace, file: IO[bytes]) -> None:
    """Write a trace for Perfetto: a track a party and a link direction, flows from causes to effects, counters.

    Raises InputError where the extra `export` is not installed.
    """
    protos = _protos()
    timeline = Timeline.of(trace)
    for packet in _packets(protos, timeline):
        packet.trusted_packet_sequence_id = _SEQUENCE
        data = packet.SerializeToString()
        file.write(_FIELD + _varint(len(data)) + data)


def _protos() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise InputError(
            "--export perfetto needs the extra 'export': pip install 'comet-sim[export]'; accepted without it: chrome"
        ) from None
    return perfetto_trace_pb2


def _packets(protos: Any, timeline: Timeline) -> Iterator[Any]:
    yield from _descriptors(protos, timeline)
    events = protos.TrackEvent
    names_seen = np.zeros(len(timeline.names), bool)
    s = timeline.slices
    effect, cause = causes(s)
    flows = _outgoing(len(s), s.id[effect], cause)
    comes_from = np.zeros(len(s), bool)
    comes_from[effect] = True
    columns = (s.id, s.track, s.start, s.end, s.name, s.payload, s.depth, comes_from)
    rows = zip(*(each.tolist() for each in columns), strict=True)
    for number, (id, track, start, end, name, payload, depth, caused) in enumerate(rows):
        packet = protos.TracePacket(timestamp=start, sequence_flags=_NEEDS)
        if not names_seen[name]:
            names_seen[name] = True
            packet.interned_data.event_names.add(iid=name + 1, name=timeline.names[name])
        event = packet.track_event
        event.type, event.track_uuid, event.name_iid = events.TYPE_SLICE_BEGIN, _FIRST + track, name + 1
        if payload >= 0:
            event.debug_annotations.add(name_iid=_PAYLOAD, uint_value=payload)
            event.debug_annotations.add(name_iid=_DEPTH, uint_value=depth)
        if caused:
            event.terminating_flow_ids.append(id)
        outgoing = flows[number]
        if outgoing is not None:
            event.flow_ids.extend(outgoing)
        yield packet
        closing = protos.TracePacket(timestamp=end)
        closing.track_event.type, closing.track_event.track_uuid = events.TYPE_SLICE_END, _FIRST + track
        yield closing
    for number, counter in enumerate(timeline.counters):
        yield from _counted(protos, counter, _FIRST + len(timeline.tracks) + number)


def _descriptors(protos: Any, timeline: Timeline) -> Iterator[Any]:
    first = protos.TracePacket(sequence_flags=_CLEARED)
    first.interned_data.debug_annotation_names.add(iid=_PAYLOAD, name="payload bytes")
    first.interned_data.debug_annotation_names.add(iid=_DEPTH, name="depth")
    for uuid, name in _GROUPS.values():
        packet = first if uuid == 1 else protos.TracePacket()
        packet.track_descriptor.uuid, packet.track_descriptor.name = uuid, name
        yield packet
    for number, track in enumerate(timeline.tracks):
        packet = protos.TracePacket()
        described = packet.track_descriptor
        described.uuid, described.name, described.parent_uuid = (
            _FIRST + number,
            track.name,
            _GROUPS[track.kind][0],
        )
        yield packet
    for number, counter in enumerate(timeline.counters):
        packet = protos.TracePacket()
        described = packet.track_descriptor
        described.uuid, described.name = _FIRST + len(timeline.tracks) + number, counter.name
        described.parent_uuid = _GROUPS["link"][0]
        described.counter.unit_name = counter.unit
        yield packet


def _counted(protos: Any, counter: Counter, uuid: int) -> Iterator[Any]:
    for time, value in zip(counter.times.tolist(), counter.values.tolist(), strict=True):
        packet = protos.TracePacket(timestamp=time)
        event = packet.track_event
        event.type, event.track_uuid, event.counter_value = protos.TrackEvent.TYPE_COUNTER, uuid, value
        yield packet


def _outgoing(count: int, ids: Ints, cause: Ints) -> list[list[int] | None]:
    """Return for each slice the ids of what it caused, None for nothing."""
    found: list[list[int] | None] = [None] * count
    order = np.argsort(cause, kind="stable")
    causing, first = np.unique(cause[order], return_index=True)
    if not len(causing):
        return found
    for slice, mine in zip(causing.tolist(), np.split(ids[order], first[1:]), strict=True):
        found[slice] = mine.tolist()
    return found


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
