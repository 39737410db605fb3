"""Synthetic runs: small ones drawn by hypothesis, and a large one shaped like the decoding of a 7B model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

from hypothesis import strategies as st

from comet_sim.events import NO_CAUSE, Compute, DealerRequest, Message, Names, Reveal
from comet_sim.trace import Recorder, Trace

Record = Message | Compute | Reveal | DealerRequest

NAMED = {
    Message: {"path", "src", "dst"},
    Compute: {"path", "party"},
    Reveal: {"path", "audience", "what", "why"},
    DealerRequest: {"path", "kind"},
}
TEXTS = (
    "",
    "token0/layer0/ffn/gelu",
    "token0/layer1/ffn",
    "token12/layer1/attention",
    "server0",
    "server1",
    "é",
)


def names_of(texts: Iterable[str] = TEXTS) -> Names:
    names = Names()
    for text in texts:
        names.intern(text)
    return names


def feed(recorder: Recorder, records: Iterable[Record]) -> Recorder:
    take = {
        Message: recorder.message,
        Compute: recorder.compute,
        Reveal: recorder.reveal,
        DealerRequest: recorder.dealer_request,
    }
    for record in records:
        take[type(record)](record)
    return recorder


def memory_trace(records: Iterable[Record], names: Names, rows_per_block: int = 65_536) -> Trace:
    return Trace.of(feed(Recorder(names, None, rows_per_block=rows_per_block), records))


def folder_trace(folder: Path, records: Iterable[Record], names: Names, **options: int) -> Trace:
    feed(Recorder(names, folder, metadata={"seed": 7}, **options), records).close()
    return Trace.load(folder)


def _one(kind: type[Record]) -> st.SearchStrategy[Record]:
    widths = {
        "phase": st.integers(0, 2),
        "depth": st.integers(0, 2**31 - 1),
        "priority": st.integers(-128, 127),
    }
    named = st.integers(0, len(TEXTS) - 1)
    # Sums of times stay within 64 bits.
    wide = st.integers(-1, 2**59)
    fields = {each: named if each in NAMED[kind] else widths.get(each, wide) for each in kind._fields}
    return st.fixed_dictionaries(fields).map(lambda values: kind(**values))


RECORDS = st.lists(st.one_of(*(_one(kind) for kind in NAMED)), max_size=25)


OPS = [
    *(f"attention/softmax/max/r{i}" for i in range(40)),
    *(f"attention/softmax/reciprocal/r{i}" for i in range(45)),
    *(f"ffn/gelu/r{i}" for i in range(38)),
    *(f"ffn/norm/r{i}" for i in range(40)),
    *("attention/qkv", "attention/scores", "attention/out", "ffn/predictor", "ffn/somm", "ffn/simm"),
]


def decode_run(names: Names, tokens: int, layers: int = 32) -> Iterator[Record]:
    """Yield both servers' compute and messages of each round, the way a run records them: as they finish."""
    servers = (names.intern("server0"), names.intern("server1"))
    now, id, depth = 0, 0, 0
    causes = (NO_CAUSE, NO_CAUSE)
    for token in range(tokens):
        for layer in range(layers):
            for op in OPS:
                path = names.intern(f"token{token}/layer{layer}/{op}")
                depth += 1
                size = 8 * (1 + crc32(op.encode()) % 200)
                sent = now + size // 3
                for i, party in enumerate(servers):
                    yield Compute(id + i, 2, path, party, causes[i], now, now, sent, size * 10, size * 30)
                for i, party in enumerate(servers):
                    wire = size + 98
                    yield Message(
                        id + 2 + i, 2, path, party, servers[1 - i], size, wire, depth, 0, id + i, sent,
                        0, 5000, 0, wire * 8 // 5, 100_000,
                    )  # fmt: skip
                now = sent + 5000 + wire * 8 // 5 + 100_000
                causes = (id + 3, id + 2)
                id += 4
