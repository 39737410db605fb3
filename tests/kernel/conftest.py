"""Every coroutine test in this directory runs on the virtual loop, over both of its ways into simpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from comet_sim.kernel import VirtualLoop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], VirtualLoop]]:
    return {"direct": VirtualLoop, "public": partial(VirtualLoop, simpy_internals=False)}
