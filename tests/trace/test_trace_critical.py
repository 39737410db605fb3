from __future__ import annotations

import time

import numpy as np
import pytest
from fifo_model import Event, fifo_events, names_of_events, play, records_of
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
    with pytest.raises(InputError, match="nothing happened in phase 'set-up'"):
        critical_path(trace, "setup")
    with pytest.raises(InputError, match="'warm-up': accepted are"):
        critical_path(trace, "warm-up")


def test_event_before_its_cause_ended_is_refused() -> None:
    records: list[Record] = [message(0, NO_CAUSE, 0), message(1, 0, 14)]
    with pytest.raises(InputError, match="event 1 begins at 14 ns, before its cause 0 ended"):
        critical_path(memory_trace(records, names_of()))


def test_a_wait_for_the_one_before_is_that_ones_time() -> None:
    """A path along causes only said "waited for the link" where another message's bytes were the reason."""
    records: list[Record] = [
        message(0, NO_CAUSE, 0, (0, 0, 0, 50, 5), path=2),
        Compute(1, 2, 1, 4, NO_CAUSE, 0, 0, 10, 1, 1),
        message(2, 1, 10, (40, 0, 0, 7, 5)),  # the link is free at 50
    ]
    path = critical_path(memory_trace(records, names_of()))
    assert path.steps["id"].to_pylist() == [0, 2]
    assert path.steps["held_by"].to_pylist() == ["start", "link"]
    assert path.steps["begin"].to_pylist() == [0, 50]
    assert path.steps["end"].to_pylist() == [50, 62]
    assert {part: time for part, time in path.parts.items() if time} == {"serialise": 57, "propagate": 5}
    assert [(each.op, each.total) for each in path.by_op()] == [
        ("token*/layer*/ffn", 50),
        ("token*/layer*/ffn/gelu", 12),
    ]


def test_a_wait_for_the_device_is_that_of_the_work_before() -> None:
    records: list[Record] = [
        Compute(0, 2, 2, 4, NO_CAUSE, 0, 0, 20, 1, 1),
        Compute(1, 2, 1, 4, NO_CAUSE, 5, 20, 22, 1, 1),
    ]
    path = critical_path(memory_trace(records, names_of()))
    assert path.steps["held_by"].to_pylist() == ["start", "device"]
    assert {part: time for part, time in path.parts.items() if time} == {"compute": 22}


def test_filters_keep_steps_of_the_whole_path() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=2, layers=2), names)
    path = critical_path(trace)
    one = path.by_op(4, Filter(token=1, layer=0))
    assert sum(each.steps for each in one) == 2 * 169
    assert 0 < sum(each.total for each in one) < path.makespan
    assert sum(each.steps for each in path.by_op(filters=Filter(link=("server0", "server1")))) == 2 * 169


@given(fifo_events())
def test_parts_add_up_to_the_makespan(events: list[Event]) -> None:
    path = critical_path(memory_trace(records_of(events), names_of_events(events), rows_per_block=3))
    times = play(events)
    assert path.end == times.finish
    assert tuple(path.parts) == PARTS
    assert sum(path.parts.values()) == path.makespan == sum(share.total for share in path.by_op(1))
    begin, end = path.steps["begin"].to_numpy(), path.steps["end"].to_numpy()
    # Step after step without overlap; a gap only where an event has no cause in the phase.
    assert (begin[1:] == end[:-1]).all() and end[-1] == path.end
    assert path.parts["gap"] == begin[0] - path.start
    assert min(path.parts.values()) >= 0 and (end >= begin).all()


@given(fifo_events())
def test_no_chain_of_causes_is_longer(events: list[Event]) -> None:
    """The makespan covers the work and way of every chain, without its waits."""
    path = critical_path(memory_trace(records_of(events), names_of_events(events)))
    chain: list[int] = []
    for event in events:
        chain.append(event.duration + event.propagate + (chain[event.cause] if event.cause >= 0 else 0))
    assert path.makespan >= max(chain)


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


@given(fifo_events(), st.integers(1, 20), st.integers(1, 4))
def test_the_path_does_not_depend_on_how_much_is_in_memory(
    events: list[Event], window: int, rows_per_block: int
) -> None:
    records, names = records_of(events), names_of_events(events)
    trace = memory_trace(records, names, rows_per_block=rows_per_block)
    whole, part = critical_path(trace, window=None), critical_path(trace, window=window)
    assert part.steps.to_pylist() == whole.steps.to_pylist()
    assert (part.start, part.end, part.parts) == (whole.start, whole.end, whole.parts)
    assert part.by_op(1) == whole.by_op(1) and part.time_with("user") == whole.time_with("user")
    assert part.slack.values.tolist() == whole.slack.values.tolist()


def test_a_long_run_in_small_windows() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=3, layers=3), names, rows_per_block=100)
    whole, part = critical_path(trace, window=None), critical_path(trace, window=300)
    assert part.steps.equals(whole.steps.unify_dictionaries()) or (
        part.steps.to_pylist() == whole.steps.to_pylist()
    )
    assert part.by_op() == whole.by_op()


def test_windows_hold_part_of_a_phase_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: half a billion events' columns in memory at once while a summary was made."""
    names = Names()
    trace = memory_trace(decode_run(names, tokens=4, layers=4), names, rows_per_block=100)
    sizes = []
    read = trace.read

    def noted(name: str, columns: list[str], blocks: list[int]) -> object:
        found = read(name, columns, blocks)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(trace, "read", noted)
    path = critical_path(trace, window=500)
    path.by_op(3)
    assert max(sizes) <= 700 < len(trace.messages)


def test_time_with_a_party() -> None:
    events = [
        Event("server0", None, 10, path="a"),
        Event("server0", "user", 3, 5, (0,), path="a"),
        Event("user", None, 7, 0, (1,), path="b"),
        Event("user", "server1", 2, 1, (2,), path="b"),
        Event("server1", None, 30, 0, (3,), path="c"),
    ]
    path = critical_path(memory_trace(records_of(events), names_of_events(events)))
    assert [path.time_with(party) for party in ("user", "server1", "server0", "dealer")] == [18, 33, 18, 0]
