"""The JSON that Chrome's trace viewer and Perfetto's page read: complete events, flow arrows and counters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

import numpy as np

from comet_sim.export.causes import causes
from comet_sim.export.timeline import Timeline
from comet_sim.trace import Trace

__all__ = ["write_chrome"]

_GROUPS = {"party": 1, "link": 2}
_COUNTERS = 3
_CHUNK = 16_384


def write_chrome(trace: Trace, file: IO[bytes]) -> None:
    """Write a trace as Chrome JSON: an event a piece of work or message, an arrow from each cause to its effect."""
    timeline = Timeline.of(trace)
    head = {"displayTimeUnit": "ns", "otherData": {"digest": trace.digest or "", "comet-sim": trace.version}}
    file.write(json.dumps(head)[:-1].encode() + b',"traceEvents":[\n')
    waiting: list[str] = []
    first = True
    for line in _lines(timeline):
        waiting.append(line)
        if len(waiting) == _CHUNK:
            file.write(("" if first else ",\n").encode() + ",\n".join(waiting).encode())
            waiting, first = [], False
    file.write(("" if first or not waiting else ",\n").encode() + ",\n".join(waiting).encode() + b"\n]}\n")


def _lines(timeline: Timeline) -> Iterator[str]:
    for group, pid in (*_GROUPS.items(), ("counter", _COUNTERS)):
        yield _meta("process_name", pid, 0, {"party": "work", "link": "links", "counter": "counters"}[group])
    places = []
    for number, track in enumerate(timeline.tracks):
        pid = _GROUPS[track.kind]
        yield _meta("thread_name", pid, number, track.name)
        places.append(f'"pid":{pid},"tid":{number}')
    names = [json.dumps(name) for name in timeline.names]
    s = timeline.slices
    columns = (s.id, s.track, s.start, s.end, s.name, s.payload, s.depth)
    for id, track, start, end, name, payload, depth in zip(*(each.tolist() for each in columns), strict=True):
        more = "" if payload < 0 else f',"args":{{"payload":{payload},"depth":{depth},"id":{id}}}'
        yield f'{{"ph":"X","name":{names[name]},{places[track]},"ts":{_us(start)},"dur":{_us(end - start)}{more}}}'
    effect, cause = causes(s)
    arrows = (s.id[effect], s.track[effect], s.start[effect], s.track[cause], s.start[cause])
    rows = zip(*(each.tolist() for each in arrows), strict=True)
    for id, to_track, to, from_track, since in rows:
        yield f'{{"ph":"s","cat":"cause","name":"cause","id":{id},{places[from_track]},"ts":{_us(since)}}}'
        yield f'{{"ph":"f","bp":"e","cat":"cause","name":"cause","id":{id},{places[to_track]},"ts":{_us(to)}}}'
    for counter in timeline.counters:
        name = json.dumps(counter.name)
        for time, value in zip(counter.times.tolist(), np.asarray(counter.values).tolist(), strict=True):
            yield f'{{"ph":"C","name":{name},"pid":{_COUNTERS},"ts":{_us(time)},"args":{{"{counter.unit}":{value}}}}}'


def _meta(kind: str, pid: int, tid: int, name: str) -> str:
    return json.dumps({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}})


def _us(ns: int) -> str:
    """Return nanoseconds as the format's microseconds, exactly."""
    return f"{ns // 1000}.{ns % 1000:03d}"
