"""Exports of traces, read back with the formats' own readers: nothing missing, nothing twice, arrows that bind."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path

import dpkt
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from comet_sim.errors import InputError
from comet_sim.export import FORMATS, export, formats
from comet_sim.export.causes import causes
from comet_sim.export.pcapng import SEGMENT, write_pcapng
from comet_sim.export.timeline import Timeline, lanes
from comet_sim.mpc import beaver, compare
from comet_sim.testing import run_protocol
from comet_sim.trace import Filter, Trace
from comet_sim.trace.columns import ints


async def program(s, x, y):
    """Two strands, so that messages wait for each other on a link."""
    await s.gather(lambda child: compare.relu(child, x), lambda child: beaver.matmul(child, y, y))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return run_protocol(program, np.ones(3000), np.ones((60, 60)), exact=False).trace


@pytest.fixture(scope="module")
def timeline(trace: Trace) -> Timeline:
    return Timeline.of(trace)


def written(trace: Trace, format: str) -> bytes:
    file = io.BytesIO()
    FORMATS[format][1](trace, file)
    return file.getvalue()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_two_slices_of_a_lane_overlap(intervals):
    start = np.array([begin for begin, _ in intervals])
    end = start + np.array([length for _, length in intervals])
    lane = lanes(start, end)
    for number in range(lane.max() + 1):
        mine = np.flatnonzero(lane == number)
        order = mine[np.lexsort((end[mine], start[mine]))]
        assert len(order), "no empty lane"
        assert (start[order][1:] >= end[order][:-1]).all()


def test_everything_is_on_the_timeline_once(trace, timeline):
    assert sorted(timeline.slices.id.tolist()) == sorted(
        [*ints(trace.messages, "id").tolist(), *ints(trace.compute, "id").tolist()]
    )
    assert (timeline.slices.end >= timeline.slices.start).all() and (
        np.diff(timeline.slices.start) >= 0
    ).all()
    assert {track.name for track in timeline.tracks if track.kind == "party"} == {
        "server0",
        "server1",
    }
    effect, cause = causes(timeline.slices)
    assert len(effect) > 20
    assert (timeline.slices.start[effect] >= timeline.slices.end[cause]).all(), (
        "a cause ends before its effect"
    )


def test_counters_add_up(trace, timeline):
    waiting = {each.name: each for each in timeline.counters if each.unit == "bytes"}
    assert waiting, "the two strands wait for each other"
    for counter in waiting.values():
        assert counter.values.min() == 0 and counter.values[-1] == 0 and counter.values.max() > 0
    for counter in (each for each in timeline.counters if each.unit == "%"):
        assert 0 < counter.values.max() <= 101
        messages = trace.select(
            Filter(link=tuple(counter.name.removeprefix("use of ").split(" -> ")))
        ).messages
        start = sum(ints(messages, part) for part in ("created", "queued", "host", "stall"))
        span = (start + ints(messages, "serialise")).max() - start.min()
        busy = ints(messages, "serialise").sum() / span
        assert counter.values.mean() / 100 == pytest.approx(busy, abs=0.01)


def test_chrome(trace, timeline):
    events = json.loads(written(trace, "chrome"))["traceEvents"]
    kinds = Counter(event["ph"] for event in events)
    assert kinds["X"] == len(timeline.slices) and kinds["s"] == kinds["f"] == len(causes(timeline.slices)[0])
    slices = [event for event in events if event["ph"] == "X"]
    first = next(event for event in slices if "args" in event)
    row = next(row for row in trace.messages.to_pylist() if row["id"] == first["args"]["id"])
    start = sum(row[part] for part in ("created", "queued", "host", "stall"))
    assert first["args"]["payload"] == row["payload"] and first["name"] == row["path"]
    assert round(first["ts"] * 1000) == start and round(first["dur"] * 1000) == row["serialise"]
    for arrow in (event for event in events if event["ph"] in "sf"):
        inside = [each for each in slices if (each["pid"], each["tid"]) == (arrow["pid"], arrow["tid"])]
        assert any(each["ts"] <= arrow["ts"] <= each["ts"] + each["dur"] for each in inside)


def test_perfetto(trace, timeline):
    packets = protos.Trace.FromString(written(trace, "perfetto")).packet
    tracks = {
        each.track_descriptor.uuid: each.track_descriptor
        for each in packets
        if each.HasField("track_descriptor")
    }
    assert sum(each.HasField("counter") for each in tracks.values()) == len(timeline.counters)
    names = {}
    opened: Counter[int] = Counter()
    begun, arrows, ends = 0, Counter(), Counter()
    for packet in packets:
        assert packet.trusted_packet_sequence_id == 1
        names |= {each.iid: each.name for each in packet.interned_data.event_names}
        event = packet.track_event
        if not packet.HasField("track_event"):
            continue
        assert event.track_uuid in tracks
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            begun += 1
            opened[event.track_uuid] += 1
            assert names[event.name_iid] in timeline.names
            arrows.update(event.flow_ids)
            ends.update(event.terminating_flow_ids)
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            opened[event.track_uuid] -= 1
    assert begun == len(timeline.slices) and not any(opened.values())
    assert arrows == ends and set(arrows.values()) == {1} and len(arrows) == len(causes(timeline.slices)[0])


def test_pcapng(trace):
    data = io.BytesIO(written(trace, "pcapng"))
    reader = dpkt.pcapng.Reader(data)
    packets = list(reader)
    framed = ints(trace.messages, "payload") + 32
    assert len(packets) == (-(-framed // SEGMENT)).sum()
    sent: dict[bytes, int] = {}
    for _, captured in packets:
        segment = dpkt.ethernet.Ethernet(captured).data
        header = captured[14:34]
        assert dpkt.in_cksum(header) == 0, "the header's checksum is right"
        link = segment.src + segment.dst
        assert segment.data.seq == sent.get(link, 0), "the bytes of a link are in order and without a gap"
        sent[link] = sent.get(link, 0) + segment.len - 40
    assert sum(sent.values()) == framed.sum()
    last = max(float(time) for time, _ in packets)
    assert last == pytest.approx(
        (ints(trace.messages, "delivered") - ints(trace.messages, "propagate")).max() / 1e9
    )


def test_too_many_packets_are_refused(trace, monkeypatch):
    monkeypatch.setattr("comet_sim.export.pcapng._MOST", 10)
    with pytest.raises(InputError, match="accepted: at most 10; choose with --phase"):
        write_pcapng(trace, io.BytesIO())


def test_parquet_holds_the_rounds(trace, tmp_path):
    export(trace.select(Filter(phase="online")), "parquet", tmp_path / "rounds.parquet")
    rounds = pq.read_table(tmp_path / "rounds.parquet").to_pylist()
    assert len(rounds) > 8 and {row["phase"] for row in rounds} == {"online"}


def test_a_part_and_an_empty_one(trace):
    part = trace.select(Filter(link=("server0", "server1")))
    assert {track.name for track in Timeline.of(part).tracks} == {"server0 -> server1"}
    nothing = trace.select(Filter(path="no/such/op"))
    for format in FORMATS:
        assert written(nothing, format)
    assert json.loads(written(nothing, "chrome"))["traceEvents"]


def test_nothing_half_written(trace, tmp_path, monkeypatch):
    def fails(trace, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(formats.FORMATS, "chrome", (".json", fails))
    with pytest.raises(OSError, match="No space"):
        export(trace, "chrome", tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="no such folder"):
        export(trace, "parquet", tmp_path / "none" / "trace.parquet")
    with pytest.raises(InputError, match="is a folder"):
        export(trace, "parquet", Path(tmp_path))
