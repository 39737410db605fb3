"""Slack against a model that plays the run again with one event longer or shorter."""

from __future__ import annotations

import time

import numpy as np
import pytest
from fifo_model import Event, exchanges, fifo_events, longer, names_of_events, play, records_of
from hypothesis import given
from hypothesis import strategies as st
from trace_records import decode_run, memory_trace

from comet_sim.errors import InputError
from comet_sim.events import Names
from comet_sim.trace import Filter, Trace, critical_path, slack


def trace_of(events: list[Event]) -> Trace:
    return memory_trace(records_of(events), names_of_events(events))


def by_id(trace: Trace) -> list[int]:
    table = slack(trace).table
    order = np.argsort(table["id"].to_numpy())
    return table["slack"].to_numpy()[order].tolist()


def check(events: list[Event], which: int) -> None:
    """Slack is exact: that much longer moves nothing, one more nanosecond moves the end by one."""
    trace = trace_of(events)
    found = by_id(trace)
    finish = play(events).finish
    assert min(found) == 0
    assert all(found[step] == 0 for step in critical_path(trace).steps["id"].to_pylist())
    assert play(longer(events, which, found[which])).finish == finish
    assert play(longer(events, which, found[which] + 1)).finish == finish + 1
    if found[which]:
        for less in range(1, min(found[which], events[which].duration) + 1):
            assert play(longer(events, which, -less)).finish == finish


@given(fifo_events(), st.data())
def test_slack_is_exact_on_links_and_devices(events: list[Event], data: st.DataObject) -> None:
    check(events, data.draw(st.integers(0, len(events) - 1)))


@given(exchanges(), st.data())
def test_slack_is_exact_in_exchanges(events: list[Event], data: st.DataObject) -> None:
    """Along causes alone, a half that found its receiver still at work seemed to have all the time in the world."""
    check(events, data.draw(st.integers(0, len(events) - 1)))


def test_by_hand() -> None:
    events = [
        Event("server0", None, 10, path="token0/a"),
        Event("server1", None, 4, path="token0/a"),
        Event("server0", "server1", 3, 5, (0,), path="token0/b"),
        Event("server1", "server0", 3, 5, (1,), path="token0/b"),  # there at 12, needed at 12
        Event("server1", None, 2, 0, (1, 2), path="token0/c"),  # from 18
        Event("server0", None, 7, 0, (0, 3), path="token0/c"),  # 12 to 19: ends 1 before the other
    ]
    found = slack(trace_of(events))
    assert by_id(trace_of(events)) == [0, 1, 0, 1, 0, 1]
    assert [line[1:] for line in found.by_op()] == [(2, 1, 0, 0, 1)] * 3
    assert [line.op for line in found.by_op()] == ["token*/a", "token*/b", "token*/c"]
    assert found.by_op(1) == [("token*", 6, 3, 0, 0, 1)]
    assert found.by_op(filters=Filter(link=("server1", "server0"))) == [("token*/b", 1, 0, 1, 1, 1)]
    assert found.by_op(filters=Filter(token=7)) == []


def test_a_message_of_another_party_is_needed_where_its_op_goes_on() -> None:
    """A correction that came before it was asked for holds nobody up: nothing in the trace has it as cause."""
    events = [
        Event("user", "server1", 2, 1, path="mul"),  # there at 3
        Event("server1", None, 8, path="mul"),
        Event("server1", None, 1, 0, (1,), path="mul"),  # uses it at 8
        Event("server1", None, 90, 0, (2,), path="later"),
    ]
    assert by_id(trace_of(events)) == [5, 0, 0, 0]


def test_uneven_exchanges_are_not_paired() -> None:
    events = [
        Event("server0", "server1", 1, 1, path="a"),
        Event("server0", "server1", 1, 1, path="a"),
        Event("server1", "server0", 1, 1, path="a"),
        Event("server1", "server0", 1, 1, path="b"),
        Event("server0", "server1", 1, 1, path="b"),
    ]
    assert min(by_id(trace_of(events))) == 0


def test_refusals() -> None:
    with pytest.raises(InputError, match="nothing happened in phase 'offline'"):
        slack(trace_of([Event("user", None, 1)]), "offline")


def test_a_long_run_is_quick() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=8), names)
    begin = time.process_time()
    found = slack(trace)
    assert len(found.values) == 4 * 8 * 32 * 169
    assert time.process_time() - begin < 5
