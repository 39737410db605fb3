from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_records import RECORDS, TEXTS, Record, decode_run, memory_trace, names_of

from comet_sim.errors import InputError
from comet_sim.events import DealerRequest, Message, Names, Reveal
from comet_sim.trace import (
    Trace,
    by_link,
    by_op,
    collapse,
    dealer_requests,
    phase_rounds,
    reveal_ledger,
    round_table,
    rounds,
)
from comet_sim.trace.columns import group

PHASES = ("set-up", "offline", "online")


def messages(*rows: tuple[str, str, str, int], phase: int = 2) -> Trace:
    """A trace of (path, src, dst, depth), 8 bytes each, a message a nanosecond, 10 ns under way."""
    names = Names()
    records = [
        Message(i, phase, *map(names.intern, row[:3]), 8, 72, row[3], 0, -1, i, 0, 0, 0, 4, 6)
        for i, row in enumerate(rows)
    ]
    return memory_trace(records, names)


def test_sums_by_hand() -> None:
    trace = messages(
        ("token0/layer0/ffn/mul", "server0", "server1", 1),
        ("token0/layer0/ffn/mul", "server1", "server0", 1),
        ("token0/layer1/ffn/mul", "server0", "server1", 2),
        ("token0/layer1/ffn/open", "server0", "user", 3),
    )
    assert by_link(trace) == [
        ("online", "server0", "server1", 2, 16, 144),
        ("online", "server0", "user", 1, 8, 72),
        ("online", "server1", "server0", 1, 8, 72),
    ]
    assert by_op(trace) == [
        ("online", "token*/layer*/ffn/mul", 3, 24, 216, 2),
        ("online", "token*/layer*/ffn/open", 1, 8, 72, 0),
    ]
    assert by_op(trace, depth=1) == [("online", "token*", 4, 32, 288, 2)]
    # The message to the user is no round between the servers.
    assert phase_rounds(trace) == {"set-up": 0, "offline": 0, "online": 2}


def test_rounds_of_repeated_and_parallel_ops() -> None:
    trace = messages(
        # Two halves of one exchange are one round; two parallel ops share a depth.
        ("token0/layer0/ffn/a", "server0", "server1", 1),
        ("token0/layer0/ffn/a", "server1", "server0", 1),
        ("token0/layer0/ffn/b", "server0", "server1", 1),
        ("token0/layer0/ffn/b", "server0", "server1", 2),
        # The dealer's messages take no round between the servers.
        ("token0/layer0/ffn/b", "dealer", "server1", 3),
        ("token0/layer1/ffn/a", "server0", "server1", 4),
        ("token1/layer0/ffn/a", "server0", "server1", 4),
        ("token1/layer0/norm", "server0", "server1", 5),
    )
    assert rounds(trace, "token0/layer0/ffn") == 2
    assert rounds(trace, "token0/layer0/ffn/b") == 2
    assert rounds(trace, "token*/layer*/ffn") == 4
    assert rounds(trace, "token*") == 3 + 2
    assert rounds(trace) == 4
    assert rounds(trace, "token7") == 0
    assert rounds(trace, phase="setup") == 0
    with pytest.raises(InputError, match="'warm-up': accepted are"):
        rounds(trace, phase="warm-up")


def test_rounds_of_two_phases_add_up() -> None:
    """Depth starts again in each phase: equal depths of two phases are two rounds."""
    names = names_of()
    records = [
        Message(i, phase, 1, 4, 5, 8, 72, 1, 0, -1, 0, 0, 0, 0, 0, 0) for i, phase in enumerate((0, 1, 2, 2))
    ]
    trace = memory_trace(records, names)
    assert rounds(trace) == 3
    assert rounds(trace, phase="online") == 1


def test_decode_run_rounds() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, tokens=2, layers=3), names)
    assert rounds(trace, "*/*/ffn/gelu") == 2 * 3 * 38
    assert {each.op: each.rounds for each in by_op(trace, 4)}["token*/layer*/ffn/gelu"] == 2 * 3 * 38
    assert phase_rounds(trace)["online"] == rounds(trace) == sum(each.rounds for each in by_op(trace))


@given(RECORDS)
def test_sums_agree_with_plain_loops(records: list[Record]) -> None:
    """Sums are exact: 2**59 in floating point would lose the last bytes."""
    records = [
        record._replace(payload=record.payload >> 8, wire=record.wire >> 8) if isinstance(record, Message)
        else record._replace(elements=record.elements >> 8) for record in records
        if isinstance(record, Message | Reveal | DealerRequest)
    ]  # fmt: skip
    trace = memory_trace(records, names_of(), rows_per_block=3)
    links: Counter[tuple[str, ...]] = Counter()
    ops: dict[tuple[str, str], int] = defaultdict(int)
    revealed: Counter[tuple[str, ...]] = Counter()
    requested: Counter[tuple[str, ...]] = Counter()
    for record in records:
        phase = PHASES[record.phase]
        if isinstance(record, Message):
            links[phase, TEXTS[record.src], TEXTS[record.dst]] += record.payload
            ops[phase, collapse(TEXTS[record.path], 2)] += record.wire
        elif isinstance(record, Reveal):
            revealed[TEXTS[record.what], TEXTS[record.why], TEXTS[record.audience]] += record.elements
        else:
            requested[phase, TEXTS[record.kind], collapse(TEXTS[record.path], 1)] += record.elements
    assert {line[:3]: line.payload for line in by_link(trace)} == dict(links)
    assert {line[:2]: line.wire for line in by_op(trace, 2)} == dict(ops)
    assert {line[:3]: line.elements for line in reveal_ledger(trace)} == dict(revealed)
    assert {line[:3]: line.elements for line in dealer_requests(trace, 1)} == dict(requested)
    table = round_table(trace)
    assert sum(table["wire"].to_pylist()) == sum(line.wire for line in by_link(trace))


def test_ledger_and_dealer_by_hand() -> None:
    names = Names()
    what, why, user = names.intern("mask"), names.intern("sparsity"), names.intern("user")
    paths = [names.intern(f"token{i}/mul") for i in range(2)]
    kind = names.intern("multiply")
    records: list[Record] = [Reveal(i, 2, paths[i], i, user, what, why, 5) for i in range(2)]
    records += [DealerRequest(2 + i, 1, paths[i], i, kind, 7, i, -1) for i in range(2)]
    trace = memory_trace(records, names)
    assert reveal_ledger(trace) == [("mask", "sparsity", "user", 2, 10)]
    assert dealer_requests(trace) == [("offline", "multiply", "token*/mul", 2, 14, 1)]


def test_queries_on_an_empty_trace() -> None:
    trace = memory_trace([], names_of())
    assert by_link(trace) == by_op(trace) == reveal_ledger(trace) == dealer_requests(trace) == []
    assert rounds(trace) == 0
    assert len(round_table(trace)) == 0


def test_round_table() -> None:
    trace = messages(
        ("b", "server1", "server0", 1),
        ("b", "server0", "server1", 1),
        ("a", "server0", "server1", 2),
        ("a", "server0", "user", 2),
        ("b", "server0", "server1", 2),
    )
    rows = round_table(trace).to_pylist()
    assert [(row["path"], row["depth"], row["left"], row["right"]) for row in rows] == [
        ("b", 1, "server0", "server1"),
        ("a", 2, "server0", "server1"),
        ("a", 2, "server0", "user"),
        ("b", 2, "server0", "server1"),
    ]
    first = rows[0]
    assert (first["messages"], first["bytes_to_right"], first["bytes_to_left"], first["wire"]) == (
        2,
        8,
        8,
        144,
    )
    assert (first["start"], first["end"], first["duration"]) == (0, 11, 11)
    assert (rows[1]["bytes_to_right"], rows[1]["bytes_to_left"]) == (8, 0)


@given(
    st.integers(1, 3).flatmap(
        lambda keys: st.lists(st.tuples(*[st.sampled_from([0, 1, 2, 900, 2**40])] * keys), max_size=20)
    )
)
def test_groups_are_those_of_a_plain_loop(rows: list[tuple[int, ...]]) -> None:
    keys = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)]
    first, inverse = group(*keys)
    wanted = sorted(set(rows))
    assert first.tolist() == [rows.index(row) for row in wanted]
    assert inverse.tolist() == [wanted.index(row) for row in rows]
