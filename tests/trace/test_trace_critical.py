from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_records import Record, decode_run, memory_trace, names_of

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE, Compute, Message, Names
from comet_sim.trace import Filter, critical_path
from comet_sim.trace.critical import PARTS


def message(
    id: int, cause: int, created: int, parts: tuple[int, ...] = (1, 2, 3, 4, 5), **more: int
) -> Message:
    record = Message(id, 2, 1, 4, 5, 8, 72, 1, 0, cause, created, *parts)
    return record._replace(**more)


def test_by_hand() -> None:
    records: list[Record] = [
        Compute(0, 2, 1, 4, NO_CAUSE, 100, 103, 110, 1, 1),
        # Ends earlier than message 2, so it is not on the path although it has the same cause.
        message(1, 0, 110, (0, 0, 0, 0, 1)),
        message(2, 0, 112),  # delivered 127, 2 ns after its cause ended
        Compute(3, 2, 2, 5, 2, 127, 127, 130, 1, 1),
    ]
    path = critical_path(memory_trace(records, names_of()))
    assert path.steps["id"].to_pylist() == [0, 2, 3]
    assert path.steps["kind"].to_pylist() == ["compute", "message", "compute"]
    assert path.steps["src"].to_pylist() == ["server0", "server0", "server1"]
    assert path.steps["dst"].to_pylist() == ["", "server1", ""]
    assert (path.start, path.end, path.makespan) == (100, 130, 30)
    assert path.parts == {
        "compute": 10,
        "device_queue": 3,
        "link_queue": 1,
        "host": 2,
        "stall": 3,
        "serialise": 4,
        "propagate": 5,
        "gap": 2,
    }
    assert [(each.op, each.steps, each.total) for each in path.by_op()] == [
        ("token*/layer*/ffn/gelu", 2, 27),
        ("token*/layer*/ffn", 1, 3),
    ]
    assert path.by_op(2)[0].parts == path.parts


def test_ties_go_to_the_highest_id() -> None:
    records: list[Record] = [message(5, NO_CAUSE, 0), message(7, NO_CAUSE, 0), message(6, NO_CAUSE, 0)]
    assert critical_path(memory_trace(records, names_of())).steps["id"].to_pylist() == [7]


def test_first_step_after_the_phase_began_is_a_gap() -> None:
    records: list[Record] = [message(0, NO_CAUSE, 10, (0, 0, 0, 0, 1)), message(1, NO_CAUSE, 40)]
    path = critical_path(memory_trace(records, names_of()))
    assert path.steps["id"].to_pylist() == [1]
    assert path.parts["gap"] == 30
    assert path.makespan == 45


def test_causes_in_another_phase_end_the_walk() -> None:
    records: list[Record] = [message(0, NO_CAUSE, 0, phase=1), message(1, 0, 50), message(2, 1, 65)]
    path = critical_path(memory_trace(records, names_of()), "online")
    assert path.steps["id"].to_pylist() == [1, 2]
    assert path.makespan == 30


def test_refusals() -> None:
    trace = memory_trace([message(0, NO_CAUSE, 0)], names_of())
    with pytest.raises(InputError, match="nothing happened in phase 'setup'"):
        critical_path(trace, "setup")
    with pytest.raises(InputError, match="'warm-up': accepted are"):
        critical_path(trace, "warm-up")


def test_event_before_its_cause_ended_is_refused() -> None:
    records: list[Record] = [message(0, NO_CAUSE, 0), message(1, 0, 14)]
    with pytest.raises(InputError, match="event 1 begins at 14 ns, before its cause 0 ended"):
        critical_path(memory_trace(records, names_of()))


@st.composite
def schedules(draw: st.DrawFn) -> list[Record]:
    """Runs in which each event begins some time after a random earlier one ended, recorded in any order."""
    ends: list[int] = []
    records: list[Record] = []
    for id in range(draw(st.integers(1, 12))):
        cause = draw(st.integers(-1, id - 1))
        begin = (ends[cause] if cause >= 0 else 0) + draw(st.sampled_from([0, 0, 3]))
        parts = tuple(draw(st.integers(0, 4)) for _ in range(5))
        path = draw(st.integers(1, 3))
        if draw(st.booleans()):
            records.append(message(id, cause, begin, parts, path=path))
            ends.append(begin + sum(parts))
        else:
            records.append(
                Compute(id, 2, path, 4, cause, begin, begin + parts[0], begin + parts[0] + parts[1], 1, 1)
            )
            ends.append(begin + parts[0] + parts[1])
    return draw(st.permutations(records))


@given(schedules())
def test_parts_add_up_to_the_makespan(records: list[Record]) -> None:
    path = critical_path(memory_trace(records, names_of(), rows_per_block=3))
    by_id = {record.id: record for record in records}
    end = {each.id: each.delivered if isinstance(each, Message) else each.end for each in records}
    last = max(end, key=lambda id: (end[id], id))
    expected = []
    while last != NO_CAUSE:
        expected.append(last)
        last = by_id[last].cause
    assert path.steps["id"].to_pylist() == expected[::-1]
    assert tuple(path.parts) == PARTS
    assert sum(path.parts.values()) == path.makespan == sum(share.total for share in path.by_op(1))
    assert sum(share.steps for share in path.by_op()) == len(expected)


def test_decode_run_has_no_gap() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=2, layers=2), names)
    path = critical_path(trace)
    assert path.parts["gap"] == 0
    assert len(path.steps) == 2 * 2 * 2 * 169
    assert np.all(np.diff(path.steps["begin"].to_numpy()) >= 0)
    # Asked of one token only, the walk ends where its first cause is filtered out.
    assert len(critical_path(trace.select(Filter(token=1))).steps) == 2 * 2 * 169


def test_long_paths_are_quick() -> None:
    """A walk that searched for each cause by scanning took time quadratic in the length of the path."""
    names = Names()
    trace = memory_trace(decode_run(names, tokens=8), names)
    begin = time.process_time()
    path = critical_path(trace)
    assert len(path.steps) == 2 * 8 * 32 * 169
    assert sum(path.parts.values()) == path.makespan
    assert time.process_time() - begin < 5
