from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trace_records import decode_run, feed, folder_trace, memory_trace, names_of

from comet_sim.errors import InputError
from comet_sim.events import Message, Names
from comet_sim.trace import Filter, Recorder, Trace, collapse
from comet_sim.trace.filters import PathPattern


@pytest.fixture
def run(tmp_path: Path) -> Path:
    names = Names()
    folder_trace(tmp_path / "run", decode_run(names, tokens=1, layers=1), names)
    return tmp_path / "run"


def rewrite(path: Path, footer: dict[str, object] | None, table: pa.Table | None = None) -> None:
    """Write a file again with another footer or other rows."""
    stored = pq.read_table(path)
    kept = json.loads(pq.ParquetFile(path).metadata.metadata[b"comet-sim"])
    metadata = None if footer is None else {"comet-sim": json.dumps(kept | footer)}
    pq.write_table((stored if table is None else table).replace_schema_metadata(metadata), path)


def test_untouched_run_verifies(run: Path) -> None:
    Trace.load(run).verify()
    Trace.load(str(run)).verify()


def test_trace_in_memory_verifies() -> None:
    names = Names()
    memory_trace(decode_run(names, 1, 1), names, rows_per_block=50).verify()


def test_empty_run_loads(tmp_path: Path) -> None:
    trace = folder_trace(tmp_path, [], names_of())
    trace.verify()
    assert len(trace.messages) == len(trace.compute) == len(trace.reveals) == len(trace.dealer) == 0


def test_recorder_to_a_folder_becomes_a_trace(tmp_path: Path) -> None:
    names = Names()
    trace = Trace.of(feed(Recorder(names, tmp_path), decode_run(names, 1, 1)))
    assert trace.where == str(tmp_path)
    trace.verify()


@pytest.mark.parametrize("name", ["messages", "compute", "reveals", "dealer"])
def test_missing_file_is_named(run: Path, name: str) -> None:
    (run / f"{name}.parquet").unlink()
    with pytest.raises(InputError, match=rf"{name}\.parquet: not found"):
        Trace.load(run)


@pytest.mark.parametrize("keep", [0, 3, 200, -1, -9])
def test_truncated_file_is_named(run: Path, keep: int) -> None:
    path = run / "messages.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(InputError, match=r"messages\.parquet: not a complete Parquet file"):
        Trace.load(run)


def test_damaged_rows_are_named(run: Path) -> None:
    """The footer is intact and only reading the rows finds the damage."""
    path = run / "messages.parquet"
    whole = bytearray(path.read_bytes())
    whole[100:1500] = b"\xff" * 1400
    path.write_bytes(whole)
    trace = Trace.load(run)
    with pytest.raises(InputError, match=r"messages\.parquet: damaged"):
        trace.messages  # noqa: B018


def test_a_flipped_bit_is_noticed_on_reading(run: Path) -> None:
    """Without checksums a flipped bit in a page of numbers reads back as other numbers."""
    path = run / "messages.parquet"
    whole = path.read_bytes()
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert len(columns) == len(Message._fields)
    for column in columns:
        start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
        damaged = bytearray(whole)
        damaged[start + column.total_compressed_size - 1] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"messages\.parquet: damaged"):
            Trace.load(run).messages  # noqa: B018


def test_a_footer_that_is_no_text_is_named(run: Path) -> None:
    path = run / "messages.parquet"
    path.write_bytes(path.read_bytes().replace(b"propagate", b"\xff\xfeopagate"))
    with pytest.raises(InputError, match=r"messages\.parquet: not a complete Parquet file"):
        Trace.load(run)


def test_a_folder_or_pipe_in_the_place_of_a_file_is_named(run: Path) -> None:
    (run / "messages.parquet").unlink()
    (run / "messages.parquet").mkdir()
    with pytest.raises(InputError, match=r"messages\.parquet: is no file"):
        Trace.load(run)


def test_reads_after_its_folder_got_another_name(run: Path) -> None:
    """A run folder is renamed when its run is finished; its trace was opened before."""
    trace = Trace.load(run)
    run.rename(run.with_name("done"))
    assert len(trace.messages)


def test_blocks_are_the_table_in_pieces(tmp_path: Path) -> None:
    names = Names()
    records = list(decode_run(names, 1, 2))
    for trace in (
        folder_trace(tmp_path, records, names, rows_per_block=100),
        memory_trace(records, names, rows_per_block=100),
        memory_trace(records, names, rows_per_block=100).select(Filter(layer=1)),
    ):
        columns = ["path", "delivered", "id"]
        blocks = list(trace.blocks("messages", columns))
        assert len(blocks) == trace.block_count("messages") == 7
        assert max(map(len, blocks)) <= 100 and blocks[3].column_names == columns
        whole = trace.messages.select(columns)
        assert [row for block in blocks for row in block.to_pylist()] == whole.to_pylist()
        again = trace.read("messages", columns, [1, 2]).to_pylist()
        assert again == blocks[1].to_pylist() + blocks[2].to_pylist()


def test_file_that_is_no_parquet_is_named(run: Path) -> None:
    (run / "dealer.parquet").write_text("id,phase\n1,2\n")
    with pytest.raises(InputError, match=r"dealer\.parquet: not a complete Parquet file"):
        Trace.load(run)


def test_foreign_parquet_is_named(run: Path) -> None:
    rewrite(run / "compute.parquet", None)
    with pytest.raises(InputError, match=r"compute\.parquet: a Parquet file, but not a trace"):
        Trace.load(run)


@pytest.mark.parametrize("text", ["[1]", "{}", "not json", '{"schema": 1}'])
def test_foreign_footer_is_named(run: Path, text: str) -> None:
    path = run / "reveals.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({"comet-sim": text}), path)
    with pytest.raises(InputError, match=r"reveals\.parquet: "):
        Trace.load(run)


def test_other_schema_version_is_refused(run: Path) -> None:
    rewrite(run / "messages.parquet", {"schema": 99})
    with pytest.raises(InputError, match=r"messages\.parquet: trace schema 99; this version reads 1"):
        Trace.load(run)


def test_lost_rows_are_noticed(run: Path) -> None:
    rewrite(run / "messages.parquet", {}, pq.read_table(run / "messages.parquet").slice(1))
    with pytest.raises(InputError, match="rows, but"):
        Trace.load(run)


def test_swapped_files_are_noticed(run: Path) -> None:
    (run / "messages.parquet").write_bytes((run / "compute.parquet").read_bytes())
    with pytest.raises(InputError, match=r"messages\.parquet: holds the table 'compute'"):
        Trace.load(run)


def test_files_of_two_runs_are_noticed(run: Path, tmp_path: Path) -> None:
    names = Names()
    folder_trace(tmp_path / "other", decode_run(names, 1, 2), names)
    (run / "messages.parquet").write_bytes((tmp_path / "other" / "messages.parquet").read_bytes())
    with pytest.raises(InputError, match="belongs to another run"):
        Trace.load(run)


def test_a_trace_that_calls_the_first_phase_setup_is_read(tmp_path: Path) -> None:
    """What broke: traces of earlier versions ended in a traceback."""
    names = names_of()
    records = [Message(i, i, 1, 4, 5, 8, 72, 1, 0, -1, 0, 0, 0, 0, 0, 0) for i in range(3)]
    folder_trace(tmp_path, records, names)
    path = tmp_path / "messages.parquet"
    table = pq.read_table(path)
    phases = table["phase"].cast(pa.string()).to_pylist()
    assert phases == ["set-up", "offline", "online"]
    place, kind = table.schema.get_field_index("phase"), table.schema.field("phase")

    def write(first: str) -> None:
        stored = pa.array([first, *phases[1:]]).dictionary_encode().cast(kind.type)
        rewrite(path, {}, table.set_column(place, kind, stored))

    write("setup")
    trace = Trace.load(tmp_path)
    assert trace.messages["phase"].to_pylist() == phases
    assert len(trace.select(Filter(phase="setup")).messages) == 1
    trace.verify()
    write("warm-up")
    with pytest.raises(InputError, match="'warm-up': accepted are set-up, offline, online"):
        Trace.load(tmp_path).messages  # noqa: B018


def test_changed_value_fails_verification(run: Path) -> None:
    path = run / "messages.parquet"
    table = pq.read_table(path)
    payload = table["payload"].to_pylist()
    payload[3] += 1
    place = table.schema.get_field_index("payload")
    rewrite(path, {}, table.set_column(place, table.schema.field(place), pa.array(payload)))
    with pytest.raises(InputError, match="the files say"):
        Trace.load(run).verify()


def test_unknown_table_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match="accepted are messages, compute, reveals, dealer"):
        Trace.load(run).table("links")


@pytest.mark.parametrize(
    ("pattern", "path", "prefix"),
    [
        ("token0", "token0/layer1", "token0"),
        ("token1", "token12/layer1", None),
        ("token0/", "token0", "token0"),
        ("*/layer1/ffn/*", "token3/layer1/ffn/gelu/mul", "token3/layer1/ffn/gelu"),
        ("*/layer1/ffn/*", "token3/layer1/ffn", None),
        ("*/layer1", "layer1", None),
        ("**/layer1", "layer1/ffn", "layer1"),
        ("**/layer1", "a/b/layer1/ffn", "a/b/layer1"),
        ("**/ffn", "token0/xffn", None),
        ("token?/layer*", "token0/layer31/ffn", "token0/layer31"),
        ("token?", "token10", None),
        ("a.b", "axb", None),
        ("a[0]", "a[0]/b", "a[0]"),
        ("", "token0/layer1", ""),
        ("", "", ""),
        ("token0", "", None),
    ],
)
def test_path_patterns(pattern: str, path: str, prefix: str | None) -> None:
    assert PathPattern(pattern).prefix(path) == prefix
    assert PathPattern(pattern).matches([path]) == [prefix is not None]


def test_collapse() -> None:
    assert collapse("token3/layer12/ffn/gelu") == "token*/layer*/ffn/gelu"
    assert collapse("token3/layer12/ffn/gelu", 3) == "token*/layer*/ffn"
    assert collapse("token3/layer12", 5) == "token*/layer*"
    assert collapse("mytoken3/layer1x/layer/token") == "mytoken3/layer1x/layer/token"
    assert collapse("", 2) == ""
    assert PathPattern(collapse("token3/layer12/ffn")).prefix("token4/layer0/ffn") is not None


def test_filters() -> None:
    names = Names()
    whole = memory_trace(decode_run(names, tokens=12, layers=2), names)
    rounds = 169
    for filters, count in [
        (Filter(), 12 * 2 * rounds * 2),
        (Filter(token=1), 2 * rounds * 2),
        (Filter(layer=1), 12 * rounds * 2),
        (Filter(token=1, layer=1, path="**/gelu"), 38 * 2),
        (Filter(path="token3/layer0"), rounds * 2),
        (Filter(link=("server0", "server1"), token=0), 2 * rounds),
        (Filter(phase="online", token=0), 2 * rounds * 2),
        (Filter(phase="setup"), 0),
        (Filter(token=99), 0),
    ]:
        part = whole.select(filters)
        assert len(part.messages) == count, filters
        assert len(part.compute) == (0 if filters.link else count), filters
    both = whole.select(Filter(token=1)).select(Filter(layer=1))
    assert both.messages.equals(whole.select(Filter(token=1, layer=1)).messages)
    with pytest.raises(InputError, match="filtered trace has no digest"):
        both.verify()


def test_filters_that_cannot_match_are_refused() -> None:
    names = Names()
    trace = memory_trace(decode_run(names, 1, 1), names)
    with pytest.raises(InputError, match="'onlin': accepted are set-up, offline, online"):
        Filter(phase="onlin")
    assert Filter(phase="setup") == Filter(phase="set-up")
    with pytest.raises(
        InputError, match=r"link 'foo': write a pair of parties, such as \('server0', 'server1'\)"
    ):
        Filter(link="foo")  # type: ignore[arg-type]
    for wrong in ({"link": ("user",)}, {"token": -1}, {"layer": "2"}, {"token": True}, {"path": 3}):
        with pytest.raises(InputError, match=rf"{next(iter(wrong))} .*: write "):
            Filter(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no party 'server2'; there are server0, server1"):
        trace.select(Filter(link=("server0", "server2")))


def test_delivered_is_not_stored(run: Path) -> None:
    assert pq.ParquetFile(run / "messages.parquet").schema_arrow.names == list(Message._fields)
