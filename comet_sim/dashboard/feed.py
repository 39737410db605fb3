"""A run as it is played: an observer that keeps records for the next frame, and makes what the screen shows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any

import numpy as np

from comet_sim.dashboard.gate import Gate
from comet_sim.dashboard.parts import in_words, part_of, say
from comet_sim.dashboard.sparse import live_cache, live_masks
from comet_sim.dashboard.tally import Depths, History, Ints, Rows, Spans, Tally
from comet_sim.dashboard.view import Ledger, Link, Moment, Party, View, exchanges
from comet_sim.events import Compute, DealerRequest, Message, Names, Observer, Reveal
from comet_sim.simulation.scene import Decode, Scene
from comet_sim.units import format_count, format_duration, format_size

__all__ = ["Feed"]

_RECENT = 96
_AT_ONCE = 50_000
_WORD = 8
# Packed, not kept as tuples: those would be walked by the garbage collector again and again.
_MESSAGE = Struct(f"={len(Message._fields)}q")
_COMPUTE = Struct(f"={len(Compute._fields)}q")
_pack_message, _pack_compute = _MESSAGE.pack, _COMPUTE.pack


class Feed(Observer):
    """Passes every record on, holds the run up at the gate, and counts; `view` is called by another thread.

    The run's thread only appends packed records, which the other takes away at each frame.
    """

    def __init__(self, title: str, gate_pace: float | None, *, paused: bool = False) -> None:
        self.title = title
        self.gate = Gate(self._names, pace=gate_pace, paused=paused)
        self.finished = False
        self._inner: Observer
        self._scene: Scene | None = None
        self._facts: Mapping[str, Any] = {}
        self._decode: Decode | None = None
        self._messages = bytearray()
        self._spans = bytearray()
        self._reveals: list[Reveal] = []
        self._elements = self._requests = 0
        self._factor = _Factor()
        self._parties: tuple[str, ...] = ()
        self._number: dict[int, int] = {}
        self._reset()

    @property
    def started(self) -> bool:
        """Whether a run reports here already."""
        return self._scene is not None

    def speed(self) -> float | None:
        """Return the virtual seconds a second of wall clock, measured; None when nothing is known."""
        return self._factor.last

    # Spectator

    def begin(self, facts: Mapping[str, Any], decode: Decode | None, observer: Observer) -> Observer:
        """Take what is known of the run beforehand."""
        self._facts, self._decode, self._inner = facts, decode, observer
        return self

    def attend(self, scene: Scene) -> None:
        """Take the run itself."""
        self._parties = scene.parties
        self._number = {scene.names.intern(name): i for i, name in enumerate(scene.parties)}
        self._reset()
        self._scene = scene

    def _reset(self) -> None:
        self._tally = Tally(self._parties)
        self._server = np.array([name.startswith("server") for name in self._parties], np.bool_)
        self._ledger: dict[tuple[int, int], list[int]] = {}
        self._recent: deque[Message] = deque(maxlen=_RECENT)
        self._part = np.zeros(0, np.int64)
        self._party_of = np.zeros(0, np.int64)
        self._starts = [0, 0, 0]
        self._phase = -1
        self._works_until = np.zeros(len(self._parties), np.int64)

    def _names(self) -> Names:
        assert self._scene is not None
        return self._scene.names

    # Observer: the run's thread

    def message(self, record: Message) -> None:
        """Pass on and keep a message, and wait where the gate is closed."""
        self._inner.message(record)
        self._messages += _pack_message(*record)
        if self.gate.closed:
            self.gate.wait(record, self._stopping)

    def compute(self, record: Compute) -> None:
        """Pass on and keep a span of work."""
        self._inner.compute(record)
        self._spans += _pack_compute(*record)

    def reveal(self, record: Reveal) -> None:
        """Pass on and keep a reveal."""
        self._inner.reveal(record)
        self._reveals.append(record)

    def dealer_request(self, record: DealerRequest) -> None:
        """Pass on and count a piece of correlated randomness."""
        self._inner.dealer_request(record)
        self._requests += 1
        self._elements += record.correction

    def _stopping(self) -> bool:
        assert self._scene is not None
        return self._scene.stopping()

    # The screen's thread

    def view(self) -> View:
        """Count what came since the last frame, and return what the screen shows."""
        scene = self._scene
        if scene is None:
            return self._before()
        self._count()
        tally, phase, clock = self._tally, int(scene.phase()), scene.now()
        known = len(scene.token_times)
        moments = [self._moment(record) for record in self._recent]
        links = list(self._links(scene, phase, clock))
        held = self.gate.paused
        return View(
            title=self.title,
            system=str(self._facts.get("system", "")),
            about=_about(self._facts),
            tally=tally,
            phase=phase,
            clock=clock,
            state="finished"
            if self.finished
            else "paused"
            if held
            else "stepping"
            if self.gate.stepping
            else "running",
            pace=self._pace(),
            factor=None if held else self._factor.of(clock),
            steps=(known, int(self._facts["output_tokens"])),
            text=self._text(scene),
            now="the run has ended" if self.finished else self._now(moments),
            waits="" if self.finished else self._waits(links, moments),
            parties=self._party_lines(links, phase, clock),
            links=links,
            rounds=exchanges(moments, 24),
            masks=live_masks(scene),
            cache=live_cache(scene),
            stock=self._stock(scene),
            ledger=self._ledger_lines(),
            message=self.gate.reason,
            starts=self._starts,
        )

    def _before(self) -> View:
        return View(
            title=self.title,
            system="",
            about="reading the scenario and the model",
            tally=self._tally,
            phase=0,
            clock=0,
            state="loading",
            pace=self._pace(),
            factor=None,
            steps=(0, 0),
            text=("", ""),
            now="the model is loaded; nothing has been sent yet",
            waits="",
        )

    def _pace(self) -> str:
        return "max" if self.gate.pace is None else f"{self.gate.pace:.3g}x"

    def _count(self) -> None:
        table = _taken(self._messages, _MESSAGE)
        for start in range(0, len(table), _AT_ONCE):
            self._count_messages(table[start : start + _AT_ONCE])
        self._recent.extend(map(Message._make, table[-_RECENT:].tolist()))
        spans = _taken(self._spans, _COMPUTE)
        if len(spans):
            self._count_spans(spans)
        reveals = self._reveals[:]
        del self._reveals[: len(reveals)]
        for each in reveals:
            line = self._ledger.setdefault((each.what, each.audience), [0, 0])
            line[0] += 1
            line[1] += each.elements

    def _count_messages(self, table: Ints) -> None:
        columns = dict(zip(Message._fields, table.T, strict=True))
        self._learn(int(max(columns["path"].max(), columns["src"].max(), columns["dst"].max())))
        parts = ("created", "queued", "host", "stall", "serialise", "propagate")
        delivered: Ints = sum((columns[name] for name in parts[1:]), columns["created"])
        rows = Rows(
            columns["phase"], self._part[columns["path"]], self._party_of[columns["src"]],
            self._party_of[columns["dst"]], columns["payload"], np.zeros_like(delivered), columns["created"],
            columns["serialise"], columns["propagate"], delivered,
        )  # fmt: skip
        for phase in np.unique(rows.phase).tolist():
            # Phases follow each other, and so do their rows.
            low, high = np.searchsorted(rows.phase, [phase, phase + 1]).tolist()
            part = rows.cut(low, high)
            if phase != self._phase:
                self._begin(phase)
            between = self._server[part.src] & self._server[part.dst]
            rounds = self._depths.first(columns["depth"][low:high], between)
            self._tally.add(part._replace(round=rounds))
            left = part.delivered - part.propagate
            self._busy.add(part.src * len(self._parties) + part.dst, left - part.serialise, left)

    def _count_spans(self, table: Ints) -> None:
        columns = dict(zip(Compute._fields, table.T, strict=True))
        spans = Spans(self._party_of[columns["party"]], columns["start"], columns["end"])
        self._tally.add_work(spans, columns["phase"])
        np.maximum.at(self._works_until, spans.party, spans.end)
        if self._phase >= 0:
            now = columns["phase"] == self._phase
            self._work.add(*(column[now] for column in spans))

    def _begin(self, phase: int) -> None:
        start = self._tally.clock
        self._starts[max(phase, 0) :] = [start] * (3 - max(phase, 0))
        self._phase = phase
        self._depths = Depths()
        self._busy = History(len(self._parties) ** 2, start)
        self._work = History(len(self._parties), start)

    def _learn(self, last: int) -> None:
        """Make part and party of each name known up to number `last`."""
        known = len(self._part)
        if last < known:
            return
        names = self._names()
        texts = [names.text(i) for i in range(known, len(names))]
        self._part = np.concatenate([self._part, np.array([part_of(text) for text in texts], np.int64)])
        party = [self._number.get(known + i, -1) for i in range(len(texts))]
        self._party_of = np.concatenate([self._party_of, np.array(party, np.int64)])

    def _moment(self, record: Message) -> Moment:
        text = self._names().text
        return Moment(
            record.phase, text(record.path), text(record.src), text(record.dst), record.payload, record.depth,
            record.created, record.queued, record.host, record.stall, record.serialise, record.propagate,
            record.delivered,
        )  # fmt: skip

    def _links(self, scene: Scene, phase: int, clock: int) -> Iterator[Link]:
        if self._phase < 0:
            return
        tally, n = self._tally, len(self._parties)
        passed = max(1, clock - self._starts[phase])
        levels = self._busy.levels(clock)
        place = {name: i for i, name in enumerate(self._parties)}
        delivered, arrived = tally.link_count.sum(0), tally.link_bytes.sum(0)
        for src, i in place.items():
            for dst, j in place.items():
                link = scene.links.get((src, dst))
                total = int(tally.link_bytes[phase, i, j])
                sent = link.messages if link is not None else 0
                waiting = sent - int(delivered[i, j])
                if not total and not waiting:
                    continue
                size = None if link is None else link.payload_bytes - int(arrived[i, j])
                busy = min(1.0, float(tally.link_busy[phase, i, j]) / passed)
                yield Link(src, dst, None if link is None else waiting, size, busy, levels[i * n + j], total)

    def _party_lines(self, links: list[Link], phase: int, clock: int) -> list[Party]:
        if self._phase < 0:
            return []
        passed = max(1, clock - self._starts[phase])
        levels = self._work.levels(clock)
        found = []
        for i, name in enumerate(self._parties):
            busy = min(1.0, float(self._tally.work[phase, i]) / passed)
            if busy or any(name in (each.src, each.dst) for each in links):
                found.append(Party(name, self._doing(i, links, clock), busy, levels[i]))
        return found

    def _doing(self, party: int, links: list[Link], clock: int) -> str:
        name = self._parties[party]
        if self.finished:
            return "done"
        if self._works_until[party] > clock:
            return "works"
        awaited = [each.src for each in links if each.dst == name and each.messages]
        if not awaited and self._server[party]:
            # Servers run one program in step: who has nothing to do waits for the other's work.
            others = zip(self._parties, self._server, self._works_until, strict=True)
            awaited = [other for other, server, until in others if server and until > clock]
        return f"waits for {awaited[0]}" if awaited else "idle"

    def _now(self, moments: list[Moment]) -> str:
        if not moments:
            return "nothing has been sent yet"
        last = moments[-1]
        return say(last.path, last.src, last.dst)

    def _waits(self, links: list[Link], moments: list[Moment]) -> str:
        under_way = [each for each in links if each.messages]
        if not under_way:
            return "no message is under way: somebody works"
        first = max(under_way, key=lambda each: each.payload or 0)
        many = "a message" if first.messages == 1 else f"{first.messages:,} messages"
        size = format_size(first.payload or 0)
        return f"{in_words(first.dst)} waits for {many} of {in_words(first.src)}, {size}, under way"

    def _text(self, scene: Scene) -> tuple[str, str]:
        prompts = self._facts.get("prompts") or [self._facts.get("prompt")]
        prompt = str(prompts[0] or "") if prompts else ""
        if self._decode is None:
            tokens = f"{len(scene.token_times)} of {self._facts['output_tokens']}"
            return "", f"(shapes only, no text: {tokens} tokens known)"
        ids = list(scene.sequences[0])
        more = len(scene.sequences) - 1
        return prompt, self._decode(ids) + (f"  (+{more} more)" if more else "")

    def _stock(self, scene: Scene) -> list[str]:
        # A piece still to be dealt can be taken before it is there: not less than nothing is held.
        held = max(0, scene.stock())
        return [
            f"server1 holds {format_size(held * _WORD)} of corrections",
            f"dealt {format_count(self._requests)} pieces, {format_size(self._elements * _WORD)} of corrections",
        ]

    def _ledger_lines(self) -> list[Ledger]:
        text = self._names().text
        return [Ledger(text(what), text(whom), *line) for (what, whom), line in self._ledger.items()]


def _taken(waiting: bytearray, form: Struct) -> Ints:
    """Take packed records away from where another thread appends them: int64 (records, fields)."""
    data = bytes(waiting)
    del waiting[: len(data)]
    return np.frombuffer(data, np.int64).reshape(-1, form.size // 8)


class _Factor:
    """Virtual seconds a second of wall clock, over the last second or so."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=8)
        self.last: float | None = None

    def of(self, clock: int) -> float | None:
        self._seen.append((time.monotonic(), clock))
        (since, before), (now, after) = self._seen[0], self._seen[-1]
        self.last = (after - before) / 1e9 / (now - since) if now > since else None
        return self.last


def _about(facts: Mapping[str, Any]) -> str:
    network = facts["network"]
    rtt = network.get("rtt_ns")
    latency = "" if rtt is None else f", RTT {format_duration(rtt)}"
    return f"{facts['model']}, {facts['execution']}, {network['profile']}{latency}, device {facts['device']}"
