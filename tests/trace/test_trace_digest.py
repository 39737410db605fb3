from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_records import NAMED, RECORDS, TEXTS, Record, decode_run, memory_trace, names_of

from comet_sim.events import Compute, DealerRequest, Message, Names, Reveal

ONE_OF_EACH: list[Record] = [
    Message(0, 2, 1, 4, 5, 8, 72, 1, 0, -1, 5, 0, 1, 2, 3, 4),
    Compute(1, 2, 2, 4, 0, 20, 21, 30, 100, 200),
    Reveal(2, 2, 1, 31, 5, 2, 3, 10),
    DealerRequest(3, 1, 3, 32, 2, 10, 10, -1),
    Message(4, 2, 1, 5, 4, 8, 72, 1, 0, -1, 5, 0, 1, 2, 3, 4),
]


def digest(records: list[Record], names: Names | None = None, rows_per_block: int = 65_536) -> str:
    found = memory_trace(records, names or names_of(), rows_per_block).digest
    assert found is not None
    return found


def renumbered(records: list[Record], texts: list[str]) -> tuple[list[Record], Names]:
    """The same run with its names interned in another order."""
    names = names_of(texts)
    place = [names.intern(text) for text in TEXTS]
    changed = [
        record._replace(**{field: place[getattr(record, field)] for field in NAMED[type(record)]})
        for record in records
    ]
    return changed, names


@pytest.mark.parametrize("index", range(len(ONE_OF_EACH)))
def test_any_field_changes_it(index: int) -> None:
    whole = digest(ONE_OF_EACH)
    record = ONE_OF_EACH[index]
    for field in record._fields:
        # One lower where a name is the last, so that it stays a known name or phase.
        step = -1 if field == "phase" or getattr(record, field) == 5 else 1
        changed = [*ONE_OF_EACH]
        changed[index] = record._replace(**{field: getattr(record, field) + step})
        assert digest(changed) != whole, field


def test_rows_order_and_number_change_it() -> None:
    whole = digest(ONE_OF_EACH)
    assert digest(ONE_OF_EACH[:-1]) != whole
    assert digest([ONE_OF_EACH[-1], *ONE_OF_EACH[:-1]]) != whole
    assert digest([]) != whole


def test_text_of_a_name_changes_it() -> None:
    texts = [*TEXTS]
    texts[1] += "x"
    assert digest(ONE_OF_EACH, names_of(texts)) != digest(ONE_OF_EACH)


def test_boundaries_between_texts_count() -> None:
    """Texts hashed end to end would not tell ("ab", "c") from ("a", "bc")."""
    record = Message(0, 2, 1, 2, 1, 8, 72, 1, 0, -1, 5, 0, 1, 2, 3, 4)
    assert digest([record], names_of(["ab", "c"])) != digest([record], names_of(["a", "bc"]))


@given(RECORDS, st.permutations(TEXTS))
def test_flush_size_and_interning_order_do_not_matter(records: list[Record], texts: list[str]) -> None:
    whole = digest(records)
    for rows_per_block in (1, 7, 1000):
        assert digest(records, rows_per_block=rows_per_block) == whole
    assert digest(*renumbered(records, texts), 3) == whole


def test_is_the_same_everywhere() -> None:
    """A fixed value: another machine must find the same, and a new layout needs a new schema version."""
    names = Names()
    assert digest(list(decode_run(names, 1, 1)), names) == EXPECTED


def test_hash_seed_does_not_matter() -> None:
    program = (
        "from trace_records import decode_run, memory_trace\n"
        "from comet_sim.events import Names\n"
        "names = Names()\n"
        "print(memory_trace(decode_run(names, 1, 1), names).digest)\n"
    )
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "4321",
        "PYTHONPATH": f"{here}{os.pathsep}{here.parents[1]}",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == EXPECTED


EXPECTED = "e608ef60e8c7f9885c7220b2550c4504"
