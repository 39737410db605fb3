"""Who waited for whom, by hand and as sums that have to hold in any run; top costs beside them."""

from __future__ import annotations

import pytest
from fifo_model import Event, exchanges, fifo_events, names_of_events, records_of
from hypothesis import given
from hypothesis import strategies as st
from trace_records import Record, decode_run, memory_trace, names_of

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE, Compute, Message, Names
from comet_sim.trace import Filter, Trace, by_op, critical_path, stalls, top
from comet_sim.trace.idle import WAITED_ON


def trace_of(events: list[Event]) -> Trace:
    return memory_trace(records_of(events), names_of_events(events))


BY_HAND = [
    Event("server0", None, 10, path="token0/a"),
    Event("server1", None, 4, path="token0/a"),
    Event("server0", "server1", 3, 5, (0,), path="token0/b"),  # 10 to 18
    Event("server1", "server0", 3, 5, (1,), path="token0/b"),  # 4 to 12
    Event("server1", None, 2, 0, (1, 2), path="token0/c"),  # from 18: idle since 4
    Event("server0", None, 7, 0, (0, 3), path="token0/c"),  # from 12: idle since 10
    Event("server1", "user", 1, 4, (4,), path="token0/reveal"),  # 20 to 25
]


def test_by_hand() -> None:
    found = stalls(trace_of(BY_HAND))
    rows = found.table.to_pylist()
    assert [(row["waiter"], row["awaited"], row["path"], row["begin"], row["end"]) for row in rows] == [
        ("user", "server1", "token0/reveal", 0, 25),
        ("server1", "server0", "token0/b", 4, 18),
        ("server0", "server1", "token0/b", 10, 12),
    ]
    assert [(row["message"], row["next"]) for row in rows] == [(6, -1), (2, 4), (3, 5)]
    # Server 1 waited while server 0 worked, then while the bits left and flew.
    assert {part: rows[1][part] for part in WAITED_ON if rows[1][part]} == {
        "sender_compute": 6,
        "serialise": 3,
        "propagate": 5,
    }
    assert {part: rows[0][part] for part in WAITED_ON if rows[0][part]} == {
        "sender_idle": 14,
        "sender_compute": 6,
        "serialise": 1,
        "propagate": 4,
    }
    # Server 0 waited for the last 2 ns of the message's way.
    assert {part: rows[2][part] for part in WAITED_ON if rows[2][part]} == {"propagate": 2}
    assert found.parties == [("server0", 17, 2, 6), ("server1", 6, 14, 5), ("user", 0, 25, 0)]
    assert [line[:6] for line in found.totals()] == [
        ("user", "server1", "token*/reveal", 1, 25, 25),
        ("server1", "server0", "token*/b", 1, 14, 14),
        ("server0", "server1", "token*/b", 1, 2, 2),
    ]
    assert found.longest(1)["message"].to_pylist() == [6]
    link = Filter(link=("server0", "server1"))
    assert found.longest(5, link)["message"].to_pylist() == [2]
    assert [line.total for line in found.totals(1, link)] == [14]
    assert found.totals(filters=Filter(token=3)) == []


def test_strands_that_wait_beside_work_are_no_stall() -> None:
    """While one strand's span runs, or waits for the device, another that waits does not make the party idle."""
    names = names_of()
    records: list[Record] = [
        Compute(0, 2, 1, 4, NO_CAUSE, 0, 0, 20, 1, 1),
        Message(1, 2, 1, 5, 4, 8, 72, 1, 0, NO_CAUSE, 0, 0, 0, 0, 2, 3),
        Compute(2, 2, 1, 4, 1, 5, 20, 25, 1, 1),  # woken at 5 by the message, after the device
        Message(3, 2, 2, 5, 4, 8, 72, 1, 0, NO_CAUSE, 0, 2, 0, 0, 20, 8),
        Compute(4, 2, 1, 4, 3, 30, 30, 31, 1, 1),
    ]
    found = stalls(memory_trace(records, names))
    assert found.table["message"].to_pylist() == [3]
    assert (found.table["begin"].to_pylist(), found.table["end"].to_pylist()) == ([25], [30])
    assert found.parties[0] == ("server0", 26, 5, 0)


def test_a_bundle_names_the_op_it_held_up() -> None:
    events = [
        Event("server1", None, 1, path="token0/a"),
        Event("user", "server1", 5, 5, path="corrections"),
        Event("server1", None, 1, 0, (0, 1), path="token0/mul"),
    ]
    assert [line.op for line in stalls(trace_of(events)).totals()] == ["token*/mul"]


@given(st.one_of(fifo_events(), exchanges()))
def test_each_partys_time_adds_up(events: list[Event]) -> None:
    trace = trace_of(events)
    found = stalls(trace)
    for party in found.parties:
        assert party.busy + party.stalled + party.other == found.duration
        assert min(party[1:]) >= 0
        rows = [row for row in found.table.to_pylist() if row["waiter"] == party.party]
        assert sum(row["duration"] for row in rows) == party.stalled
    for row in found.table.to_pylist():
        parts = [row[part] for part in WAITED_ON]
        assert min(parts) >= 0 and sum(parts) == row["duration"] == row["end"] - row["begin"] > 0
    assert sum(line.total for line in found.totals(1)) == sum(found.table["duration"].to_pylist())


@given(exchanges())
def test_servers_that_exchange_have_only_named_waits(events: list[Event]) -> None:
    found = stalls(trace_of(events))
    first = [
        next(i for i, each in enumerate(events) if each.src == party) for party in ("server0", "server1")
    ]
    assert all(events[i].dst is None for i in first)
    ends = {line.party: line.other for line in found.parties}
    assert min(ends.values()) == 0  # the server that ends last was busy or waited all along


def test_refusals() -> None:
    with pytest.raises(InputError, match="nothing happened in phase 'set-up'"):
        stalls(trace_of(BY_HAND), "setup")
    with pytest.raises(InputError, match="'warm-up': accepted are"):
        stalls(trace_of(BY_HAND), "warm-up")


def test_top_by_hand() -> None:
    trace = trace_of(BY_HAND)
    lines = top(trace)
    assert {
        line.op: (line.critical, line.messages, line.payload, line.rounds, line.compute) for line in lines
    } == {
        "token*/a": (10, 0, 0, 0, 14),
        "token*/b": (8, 2, 16, 1, 0),
        "token*/c": (2, 0, 0, 0, 9),
        "token*/reveal": (5, 1, 8, 0, 0),
    }
    assert [line.op for line in lines] == ["token*/a", "token*/b", "token*/reveal", "token*/c"]
    assert {line.phase for line in lines} == {"online"}
    assert [line[1:3] for line in top(trace, 1)] == [("token*", 25)]
    assert [line[1:4] for line in top(trace, filters=Filter(path="**/b"))] == [("token*/b", 8, 2)]
    assert top(memory_trace([], names_of())) == []


def test_top_agrees_with_the_other_queries() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=2, layers=2), names)
    lines = top(trace, 4)
    assert sum(line.critical for line in lines) == critical_path(trace).makespan
    assert {line.op: (line.messages, line.payload, line.wire, line.rounds) for line in lines} == {
        line.op: line[2:] for line in by_op(trace, 4)
    }
    spans = trace.compute
    assert sum(line.compute for line in lines) == sum(spans["end"].to_pylist()) - sum(
        spans["start"].to_pylist()
    )
