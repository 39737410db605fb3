"""Virtual time: an asyncio loop on a discrete-event queue, wakes, random streams, deadlock reports."""

from __future__ import annotations

from comet_sim.kernel.clock import Timer
from comet_sim.kernel.deadlock import DeadlockError, WaitingTask
from comet_sim.kernel.errors import RealIOError
from comet_sim.kernel.loop import VirtualLoop, now_ns, sleep_ns
from comet_sim.kernel.run import run
from comet_sim.kernel.streams import generator, stream_key
from comet_sim.kernel.wake import Wake

__all__ = [
    "DeadlockError",
    "RealIOError",
    "Timer",
    "VirtualLoop",
    "WaitingTask",
    "Wake",
    "generator",
    "now_ns",
    "run",
    "sleep_ns",
    "stream_key",
]
