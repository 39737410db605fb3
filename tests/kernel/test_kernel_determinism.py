"""One seed, one log: in every process, over both ways into simpy, and seeded where ties are shuffled."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from comet_sim.kernel import VirtualLoop, Wake, now_ns, sleep_ns

PROGRAM = """
import asyncio, random
from comet_sim.kernel import run, sleep_ns, now_ns

log = []

async def worker(name):
    try:
        await asyncio.sleep(1)
    finally:
        log.append(name)

async def failing():
    await sleep_ns(10)
    raise ValueError

async def main():
    padding = [bytearray(random.SystemRandom().randrange(1, 5000)) for _ in range(50)]  # moves addresses
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                padding.append(bytearray(random.SystemRandom().randrange(1, 3000)))
                group.create_task(worker(f"w{number}"))
            group.create_task(failing())
    except* ValueError:
        pass
    done, pending = await asyncio.wait([asyncio.create_task(worker(f"x{n}")) for n in range(40)], timeout=1)
    log.extend(task.get_name() for task in done | pending)
    futures = {asyncio.get_running_loop().create_future() for _ in range(20)}
    log.extend(future.number for future in futures)
    log.append(await asyncio.gather(*{asyncio.create_task(asyncio.sleep(n, n)) for n in range(9)}))
    [asyncio.create_task(worker(f"left{n}")) for n in range(20)]
    await asyncio.sleep(0)

run(main())
print(log)
"""


def test_the_same_log_in_every_process():
    # Sets of tasks follow addresses otherwise: five different logs in six runs.
    logs = set()
    for hash_seed in ("0", "1", "77", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, timeout=60
        )
        logs.add(done.stdout)
    assert len(logs) == 1
    assert logs.pop().count("'w") == 40


def log_of(loop, plan):
    """Run the parties of `plan`, and log what each did when."""
    log = []

    async def party(number, steps):
        for kind, delay in steps:
            if kind == "sleep":
                await sleep_ns(delay)
            elif kind == "asyncio":
                await asyncio.sleep(delay / 1e9)
            elif kind == "wake":
                wake = Wake(loop)
                loop.post(loop.now_ns + delay, wake.set, None)
                await wake
            elif kind == "timeout":
                try:
                    async with asyncio.timeout(delay / 1e9):
                        await sleep_ns(3)
                except TimeoutError:
                    log.append("timed out")
            elif kind == "simpy":
                await loop.wait_event(loop.env.timeout(delay))
            else:
                with resource.request() as request:
                    await loop.wait_event(request)
                    await sleep_ns(delay)
            log.append((number, kind, now_ns()))

    async def main():
        async with asyncio.TaskGroup() as group:
            for number, steps in enumerate(plan):
                group.create_task(party(number, steps))

    resource = simpy.Resource(loop.env, 1)
    loop.run_until_complete(main())
    log.append(loop.now_ns)
    loop.close()
    return log


step = st.tuples(
    st.sampled_from(["sleep", "asyncio", "wake", "timeout", "simpy", "resource"]), st.integers(0, 6)
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(step, max_size=6), max_size=5))
def test_both_ways_into_simpy_give_one_log(plan):
    assert log_of(VirtualLoop(simpy_internals=True), plan) == log_of(VirtualLoop(simpy_internals=False), plan)


def order(tie_seed):
    loop = VirtualLoop(tie_seed=tie_seed)
    log = []
    for number in range(20):
        loop.post(5, log.append, number)
    loop.post(4, log.append, "earlier")
    loop.call_at_ns(5, log.append, "urgent", priority=0)
    loop.call_at_ns(5, log.append, "last", priority=2)
    loop.run_forever()
    loop.close()
    return log


def test_ties_are_shuffled_by_seed_and_by_nothing_else():
    plain = ["earlier", "urgent", *range(20), "last"]
    assert order(None) == plain
    orders = [order(seed) for seed in range(5)]
    assert orders == [order(seed) for seed in range(5)]
    assert len({str(one) for one in orders}) == 5
    for one in orders:
        assert (one[:2], one[-1], sorted(one[2:-1])) == (plain[:2], "last", list(range(20)))


def test_shuffled_ties_keep_simpy_processes_sound():
    # A process must start before it is interrupted: both are urgent, and urgent entries keep their order.
    for seed in range(20):
        loop = VirtualLoop(tie_seed=seed)

        def process(env):
            try:
                yield env.timeout(5)
            except simpy.Interrupt:
                return "interrupted"

        worker = loop.env.process(process(loop.env))
        worker.interrupt()
        assert loop.run_until_complete(loop.wait_event(worker)) == "interrupted"
        loop.close()


def test_shuffling_needs_simpys_internals():
    with pytest.raises(ValueError, match="simpy>=4"):
        VirtualLoop(tie_seed=1, simpy_internals=False)


def test_an_unknown_simpy_falls_back_to_the_public_api(monkeypatch):
    class Other(simpy.Environment):
        @property
        def _eid(self):
            raise AttributeError

        @_eid.setter
        def _eid(self, value):
            self.ids = value

        def schedule(self, event, priority=1, delay=0):
            raise AttributeError

    monkeypatch.setattr(simpy, "Environment", Other)
    from comet_sim.kernel import environment

    assert not environment.internals_present()
