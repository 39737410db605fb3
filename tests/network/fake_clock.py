"""A heap-based clock, the least a link needs, so that these tests do not depend on the event loop."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class FakeClock:
    def __init__(self) -> None:
        self.now_ns = 0
        self._heap: list[tuple[int, int, Callable[[Any], object], Any]] = []
        self._posted = 0

    def post(self, when_ns: int, callback: Callable[[Any], object], arg: Any, /) -> None:
        assert type(when_ns) is int
        assert when_ns >= self.now_ns
        self._posted += 1
        heapq.heappush(self._heap, (when_ns, self._posted, callback, arg))

    def run(self) -> None:
        while self._heap:
            self.now_ns, _, callback, arg = heapq.heappop(self._heap)
            callback(arg)
