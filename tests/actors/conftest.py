import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from comet_sim.actors import DeviceProfile, Party, World
from comet_sim.events import Compute, Message, Names, Phase
from comet_sim.kernel import VirtualLoop
from comet_sim.network import LinkConfig, Network, Topology

IDEAL = DeviceProfile("none", 0, 0, 0, "test")
DELAY = 1_000


class Recording:
    """Observer that keeps messages and compute spans."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.spans: list[Compute] = []

    def message(self, record: Message) -> None:
        self.messages.append(record)

    def compute(self, record: Compute) -> None:
        self.spans.append(record)


class Stage:
    """Parties a and b over a link of unlimited rate and 1000 ns one way; `play` runs a program of each."""

    def __init__(self, device: DeviceProfile) -> None:
        self.loop = VirtualLoop()
        self.names = Names()
        self.seen = Recording()
        self.world = World(self.loop, self.names, self.seen)
        self.world.phase = Phase.ONLINE
        self.a, self.b = (Party(self.world, name, device) for name in "ab")
        link = LinkConfig(rate=None, delay=DELAY)
        topology = Topology(("a", "b"), {("a", "b"): link, ("b", "a"): link})
        self.world.network = Network(self.loop, topology, self.world.deliver, self.seen.message, self.names)

    def play(self, **programs: Coroutine[Any, Any, Any]) -> dict[str, Any]:
        async def all_of_them() -> dict[str, Any]:
            async with asyncio.TaskGroup() as group:
                tasks = {name: getattr(self, name).start(group, part) for name, part in programs.items()}
            return {name: task.result() for name, task in tasks.items()}

        return self.loop.run_until_complete(all_of_them())


@pytest.fixture
def make_stage() -> Any:
    stages: list[Stage] = []

    def make(device: DeviceProfile = IDEAL) -> Stage:
        stages.append(Stage(device))
        return stages[-1]

    yield make
    for stage in stages:
        stage.loop.close()


StageMaker = Callable[..., Stage]
