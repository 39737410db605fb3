"""simpy's resources and processes on the loop's clock, awaited through the bridge."""

from __future__ import annotations

import asyncio

import pytest
import simpy

from comet_sim.kernel import VirtualLoop, Wake, now_ns, sleep_ns


def here():
    loop = asyncio.get_running_loop()
    return loop, loop.env


async def cancelled(awaitable):
    task = asyncio.create_task(awaitable)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_values_failures_and_past_events():
    loop, env = here()

    def process(fail):
        yield env.timeout(100)
        if fail:
            raise LookupError("in a process")
        return 9

    worker = env.process(process(False))
    assert await loop.wait_event(worker) == 9
    assert await loop.wait_event(worker) == 9
    with pytest.raises(LookupError, match="in a process"):
        await loop.wait_event(env.process(process(True)))
    assert await loop.wait_event(env.timeout(5, "v") & env.timeout(7)) and now_ns() == 207


async def test_a_failure_nobody_awaits_ends_the_run():
    def run(internals):
        loop = VirtualLoop(simpy_internals=internals)
        loop.env.event().fail(LookupError("lost"))
        with pytest.raises(LookupError, match="lost"):
            loop.run_until_complete(asyncio.Event().wait())
        loop.close()

    run(True)
    run(False)


async def test_resource_in_a_with_block():
    loop, env = here()
    resource = simpy.PriorityResource(env, 1)
    log = []

    async def use(name, priority):
        with resource.request(priority) as request:
            await loop.wait_event(request)
            await sleep_ns(10)
            log.append((name, now_ns()))

    await asyncio.gather(use("first", 5), use("late", 5), use("urgent", 0))
    assert log == [("first", 10), ("urgent", 20), ("late", 30)]


async def test_cancelling_withdraws_a_queued_request():
    loop, env = here()
    resource = simpy.Resource(env, 1)
    held = resource.request()
    await loop.wait_event(held)

    async def use():
        with resource.request() as request:  # simpy itself withdraws here too, and must not fail on it
            await loop.wait_event(request)

    await cancelled(use())
    await cancelled(loop.wait_event(resource.request()))
    assert resource.queue == [] and resource.count == 1


async def test_cancelling_gives_back_what_was_granted():
    # Granted but not yet seen by its task: the resource would stay taken, and the item be lost, for ever.
    loop, env = here()
    resource, store, tank = simpy.Resource(env, 1), simpy.Store(env), simpy.Container(env, init=5)
    await loop.wait_event(store.put("item"))
    await cancelled(loop.wait_event(resource.request()))
    await cancelled(loop.wait_event(store.get()))
    await cancelled(loop.wait_event(tank.get(4)))
    await sleep_ns(1)
    assert (resource.count, store.items, tank.level) == (0, ["item"], 5)


async def test_tasks_are_not_resumed_inside_a_process():
    # simpy would take the request of such a task for the process's own, and preempt the wrong one.
    loop, env = here()
    resource, wake = simpy.PreemptiveResource(env, 1), Wake(loop)

    def process():
        yield env.timeout(1)
        wake.set()
        yield env.timeout(1)

    env.process(process())
    await wake
    assert resource.request().proc is None


async def test_only_the_loop_steps_and_only_whole_nanoseconds():
    _, env = here()
    with pytest.raises(TypeError, match=r"delay 1\.5 is not an integer"):
        env.timeout(1.5)
    for forbidden in (env.step, env.run):
        with pytest.raises(RuntimeError, match="stepped by its loop"):
            forbidden()


async def test_events_of_another_environment_are_refused():
    loop, _ = here()
    with pytest.raises(ValueError, match="another environment"):
        await loop.wait_event(simpy.Environment().event())
