"""A finished run on the screen: the panels of a live one, forward and backward."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from comet_sim.comet.bitmap import Bitmap
from comet_sim.dashboard.parts import OpPlace, in_words, say
from comet_sim.dashboard.sparse import kept_cache, kept_masks
from comet_sim.dashboard.stored import Stored
from comet_sim.dashboard.view import CachePicture, Ledger, Link, MaskPicture, Party, View, exchanges
from comet_sim.errors import InputError
from comet_sim.trace.columns import codes, ints
from comet_sim.trace.filters import PathPattern
from comet_sim.trace.store import Trace
from comet_sim.units import format_count, format_duration, format_size, parse_duration

__all__ = ["ReplayScreen"]

_KINDS = {"n": "round", "o": "op", "t": "token", "s": "stall"}
_RECENT = 96
_PLAY_S = 60
_NONE = "not in a trace; exact runs under Comet keep masks.npz in their folder, and this run has none"


class ReplayScreen:
    """What the screen shows of a finished run, and what keys do."""

    def __init__(
        self, title: str, trace: Trace, summary: Mapping[str, Any], masks: Bitmap | None, pace: float | None
    ) -> None:
        self.page, self.help, self.ended, self.typing = 0, False, False, False
        self._title, self._trace, self._summary, self._masks = title, trace, summary, masks
        self._stored = stored = Stored(trace)
        if not len(stored):
            raise InputError(f"{trace.where}: the trace has no message to replay")
        self._end = int(stored.rows.delivered[-1])
        self._pace = pace or self._end / 1e9 / _PLAY_S or 1.0
        self._at = 1
        self._clock = int(stored.rows.delivered[0])
        self._since: float | None = None
        self._said, self._typed = "", ""
        self._stops: dict[str, Any] = {}
        user = stored.parties.index("user") if "user" in stored.parties else -1
        answers = (stored.rows.dst == user) & (stored.token >= 0)
        tokens = stored.token[answers]
        self._known = np.zeros(int(tokens.max(initial=-1)) + 1, np.int64)
        np.maximum.at(self._known, tokens, stored.rows.delivered[answers])

    # Keys

    def key(self, key: str) -> None:
        """Take a key."""
        if self.typing:
            self._type(key)
            return
        self._said = ""
        key = {"right": "n", "left": "N"}.get(key, key)
        if key == "q":
            self.ended = True
        elif key == " ":
            self._since = time.monotonic() if self._since is None and self._at < len(self._stored) else None
        elif key in "+=-_":
            self._pace *= 2 if key in "+=" else 0.5
        elif key in "0$":
            self._to(0 if key == "0" else len(self._stored) - 1)
        elif key == "g":
            self.typing, self._typed, self._since = True, "", None
        elif key.lower() in _KINDS and len(key) == 1:
            self._step(_KINDS[key.lower()], back=key.isupper())

    def _step(self, kind: str, *, back: bool) -> None:
        if kind not in self._stops:
            self._stops[kind] = self._stored.stops(kind)
        stops, row = self._stops[kind], self._at - 1
        place = (
            int(np.searchsorted(stops, row, "left")) - 1
            if back
            else int(np.searchsorted(stops, row, "right"))
        )
        if 0 <= place < len(stops):
            self._to(int(stops[place]))
        else:
            self._said = f"no {kind} {'before' if back else 'after'} this"

    def _to(self, row: int) -> None:
        self._since, self._at = None, row + 1
        self._clock = int(self._stored.rows.delivered[row])

    def _type(self, key: str) -> None:
        if key == "escape":
            self.typing = False
        elif key == "enter":
            self.typing = False
            self.go_to(self._typed.strip())
        elif key == "back":
            self._typed = self._typed[:-1]
        elif len(key) == 1:
            self._typed += key

    def go_to(self, where: str) -> None:
        """Go to a time, `token N`, or the next message of an op path or pattern; say so where there is none."""
        stored = self._stored
        self._said = ""
        token = re.fullmatch(r"token\s*(\d+)", where)
        if token:
            rows = np.flatnonzero(stored.token == int(token[1]))
        elif re.fullmatch(r"[\d.]+\s*[a-z]+", where):
            try:
                clock = parse_duration(where)
            except InputError as error:
                self._said = str(error)
                return
            self._to(max(0, int(np.searchsorted(stored.rows.delivered, clock, "right")) - 1))
            return
        else:
            try:
                pattern = PathPattern(where if where.startswith("**") else f"**/{where}")
                kept = np.array(pattern.matches(stored.texts), np.bool_)[stored.path]
            except InputError as error:
                self._said = str(error)
                return
            rows = np.flatnonzero(kept)
        if not where or not len(rows):
            self._said = f"no message of {where!r}"
            return
        later = rows[rows >= self._at]
        self._to(int(later[0] if len(later) and not token else rows[0]))

    # The screen

    def view(self) -> View:
        """Return what to draw now, moving on if it plays."""
        self._play()
        stored, summary, row = self._stored, self._summary, self._at - 1
        last = stored.moment(row)
        ended = self._at == len(stored)
        known = int(np.searchsorted(np.sort(self._known), self._clock, "right"))
        tally = stored.tally(self._at, self._clock)
        links = self._links(tally, last.phase)
        text = str(summary.get("text") or "") if ended else f"  ({known} of {len(self._known)} tokens known)"
        return View(
            title=f"replay {self._title}",
            system=str(summary.get("system", "")),
            about=f"{summary.get('model', '')}, {summary.get('execution', '')}",
            tally=tally,
            phase=last.phase,
            clock=self._clock,
            state="finished" if ended else "paused" if self._since is None else "playing",
            pace=f"{self._pace:.3g}x",
            factor=None,
            steps=(known, len(self._known)),
            text=(str(summary.get("prompt") or ""), text),
            now="the run has ended" if ended else say(last.path, last.src, last.dst),
            waits="" if ended else self._waits(links),
            parties=self._parties(tally, links, last.phase),
            links=links,
            rounds=exchanges([stored.moment(i) for i in range(max(0, self._at - _RECENT), self._at)], 24),
            masks=self._masks_now(row),
            cache=self._cache_now(row),
            stock=self._dealt(),
            ledger=self._ledger(),
            replay=self._clock / self._end if self._end else 1.0,
            prompt=self._typed if self.typing else None,
            message=self._said,
            starts=[min(start, self._clock) for start in stored.starts],
        )

    def _play(self) -> None:
        if self._since is None:
            return
        now = time.monotonic()
        self._clock = min(self._end, self._clock + int((now - self._since) * 1e9 * self._pace))
        self._since = now
        delivered = self._stored.rows.delivered
        self._at = max(1, int(np.searchsorted(delivered, self._clock, "right")))
        if self._at == len(self._stored):
            self._since = None

    def _links(self, tally: Any, phase: int) -> list[Link]:
        stored, names = self._stored, self._stored.parties
        n, passed = len(names), max(1, self._clock - stored.starts[phase])
        waiting = stored.under_way(self._at, self._clock)
        pair = stored.rows.src[waiting] * n + stored.rows.dst[waiting]
        count = np.bincount(pair, minlength=n * n)
        size = np.zeros(n * n, np.int64)
        np.add.at(size, pair, stored.payload[waiting])
        levels = stored.histories(phase)[0].levels(self._clock)
        found = []
        for i in range(n * n):
            total = int(tally.link_bytes[phase].reshape(-1)[i])
            if total or count[i]:
                busy = min(1.0, float(tally.link_busy[phase].reshape(-1)[i]) / passed)
                ends = names[i // n], names[i % n]
                found.append(Link(*ends, int(count[i]), int(size[i]), busy, levels[i], total))
        return found

    def _parties(self, tally: Any, links: list[Link], phase: int) -> list[Party]:
        stored = self._stored
        passed = max(1, self._clock - stored.starts[phase])
        levels, works = stored.histories(phase)[1].levels(self._clock), stored.working(self._clock)
        found = []
        for i, name in enumerate(stored.parties):
            busy = min(1.0, float(tally.work[phase, i]) / passed)
            awaited = [each.src for each in links if each.dst == name and each.messages]
            doing = "works" if works[i] else f"waits for {awaited[0]}" if awaited else "idle"
            if busy or any(name in (each.src, each.dst) for each in links):
                found.append(Party(name, doing, busy, levels[i]))
        return found

    def _waits(self, links: list[Link]) -> str:
        under_way = [each for each in links if each.messages]
        if not under_way:
            return "no message is under way: somebody works"
        first = max(under_way, key=lambda each: each.payload or 0)
        many = "a message" if first.messages == 1 else f"{first.messages:,} messages"
        size = format_size(first.payload or 0)
        return f"{in_words(first.dst)} waits for {many} of {in_words(first.src)}, {size}, under way"

    def _where(self, row: int) -> tuple[int, int, int] | None:
        """Return layer, prompt tokens and tokens in the cache at a message; None before the first layer."""
        stored = self._stored
        place = OpPlace.of(stored.texts[int(stored.path[row])])
        if place.token is None:
            return None
        prompt = int(self._summary.get("prompt_tokens", 1))
        return place.layer or 0, prompt, prompt + place.token

    def _masks_now(self, row: int) -> MaskPicture | str:
        where = self._where(row)
        if self._masks is None or where is None:
            return _NONE if self._masks is None else "no layer is at work"
        return kept_masks(self._masks, where[0], min(where[2], self._masks.tokens))

    def _cache_now(self, row: int) -> CachePicture | str:
        where = self._where(row)
        if self._masks is None or where is None:
            return _NONE if self._masks is None else "no layer is at work"
        return kept_cache(self._masks, where[0], where[1], min(where[2], self._masks.tokens))

    def _dealt(self) -> list[str]:
        dealer = self._trace.dealer
        before = ints(dealer, "time") <= self._clock
        size = 8 * int(ints(dealer, "correction")[before].sum())
        said = f"dealt {format_count(int(before.sum()))} pieces, {format_size(size)} of corrections"
        return [said, f"of a run of {format_duration(self._end)}; what is held is not in a trace"]

    def _ledger(self) -> list[Ledger]:
        reveals = self._trace.reveals
        before = np.flatnonzero(ints(reveals, "time") <= self._clock)
        (what, whats), (whom, whoms) = codes(reveals, "what"), codes(reveals, "audience")
        key = what[before] * max(1, len(whoms)) + whom[before]
        sizes = ints(reveals, "elements")[before]
        return [
            Ledger(whats[each // len(whoms)], whoms[each % len(whoms)], int((key == each).sum()),
                   int(sizes[key == each].sum()))
            for each in np.unique(key).tolist()
        ]  # fmt: skip
