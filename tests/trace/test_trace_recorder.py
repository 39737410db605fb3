from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from trace_records import RECORDS, TEXTS, Record, decode_run, feed, folder_trace, memory_trace, names_of

from comet_sim.events import Compute, DealerRequest, Message, Names, Phase, Reveal
from comet_sim.trace import Recorder, Trace

KINDS = {"messages": Message, "compute": Compute, "reveals": Reveal, "dealer": DealerRequest}


def plain(records: list[Record], kind: type[Record]) -> list[dict[str, object]]:
    """What a table should read back as: names and phases by text."""
    rows = []
    for record in records:
        if isinstance(record, kind):
            row: dict[str, object] = record._asdict()
            for name in ("path", "src", "dst", "party", "audience", "what", "why", "kind"):
                if name in row:
                    row[name] = TEXTS[row[name]]
            row["phase"] = Phase(record.phase).label
            if isinstance(record, Message):
                row["delivered"] = record.delivered
            rows.append(row)
    return rows


@given(RECORDS)
def test_reads_back_what_was_recorded(records: list[Record]) -> None:
    trace = memory_trace(records, names_of(), rows_per_block=4)
    for name, kind in KINDS.items():
        assert trace.table(name).to_pylist() == plain(records, kind)


def test_folder_reads_back_what_was_recorded(tmp_path: Path) -> None:
    names = Names()
    records = list(decode_run(names, tokens=1, layers=2))
    # A block size that does not divide the rows: the last, short block must not be lost.
    stored = folder_trace(tmp_path / "run", records, names, rows_per_block=100)
    kept = memory_trace(records, names)
    for name in KINDS:
        assert stored.table(name).to_pylist() == kept.table(name).to_pylist()
        assert len({stored.table(name)[column].num_chunks for column in stored.table(name).column_names}) <= 1
    assert stored.metadata == {"seed": 7}
    assert stored.digest == kept.digest


def test_files_appear_only_when_closed(tmp_path: Path) -> None:
    names = Names()
    recorder = feed(Recorder(names, tmp_path, rows_per_block=10), decode_run(names, 1, 1))
    assert not list(tmp_path.glob("*.parquet"))
    recorder.close()
    recorder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.parquet" for name in KINDS)


def test_abort_leaves_nothing(tmp_path: Path) -> None:
    names = Names()
    recorder = feed(Recorder(names, tmp_path, rows_per_block=10), decode_run(names, 1, 1))
    recorder.abort()
    assert not list(tmp_path.iterdir())


def test_abort_keeps_an_earlier_run(tmp_path: Path) -> None:
    names = Names()
    earlier = folder_trace(tmp_path, decode_run(names, 1, 1), names)
    feed(Recorder(names, tmp_path, rows_per_block=10), decode_run(names, 1, 2)).abort()
    assert Trace.load(tmp_path).digest == earlier.digest


@pytest.mark.parametrize("field", [{"depth": 2**31}, {"priority": 128}, {"phase": 3}])
def test_value_too_wide_is_refused_not_wrapped(field: dict[str, int], tmp_path: Path) -> None:
    record = Message(*([0] * 16))._replace(**field)
    recorder = feed(Recorder(names_of(), tmp_path), [record])
    with pytest.raises((pa.ArrowInvalid, IndexError)):
        recorder.close()
    assert not list(tmp_path.iterdir())


def test_metadata_that_is_no_json_leaves_no_files(tmp_path: Path) -> None:
    recorder = Recorder(names_of(), tmp_path, metadata={"ratio": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        recorder.close()
    assert not list(tmp_path.iterdir())


def test_small_on_disk(tmp_path: Path) -> None:
    """200,000 messages: Parquet's 1 MiB dictionary limit once made it write every path in full."""
    names = Names()
    recorder = feed(Recorder(names, tmp_path), decode_run(names, tokens=20))
    recorder.close()
    assert recorder.rows("messages") > 200_000
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert (tmp_path / "messages.parquet").stat().st_size / recorder.rows("messages") < 4
    assert size / (recorder.rows("messages") + recorder.rows("compute")) < 4


def test_streaming_memory_is_bounded(tmp_path: Path) -> None:
    names = Names()
    records = list(decode_run(names, tokens=4))
    recorder = Recorder(names, tmp_path, rows_per_block=2048)
    feed(recorder, records[:10_000])
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    feed(recorder, records[10_000:])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert recorder.rows("messages") > 40_000  # 5 MB of messages alone, were they kept
    assert peak < 3_000_000
    assert pa.total_allocated_bytes() - before < 3_000_000
    recorder.close()


def test_pyarrow_loads_at_the_first_flush_only() -> None:
    program = (
        "import sys, comet_sim.trace\n"
        "from comet_sim.events import Message, Names\n"
        "recorder = comet_sim.trace.Recorder(Names(), None)\n"
        "recorder.message(Message(*([0] * 16)))\n"
        "assert 'pyarrow' not in sys.modules\n"
        "recorder.close()\n"
        "assert 'pyarrow' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
