"""Ordinary asyncio programs must work, at exact virtual times, over both ways into simpy."""

from __future__ import annotations

import asyncio
import contextvars
import math

import pytest

from comet_sim.kernel import VirtualLoop, now_ns, sleep_ns

SECOND = 1_000_000_000


async def nap(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return now_ns()


async def test_the_plugin_hook_gives_the_virtual_loop():
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    assert now_ns() == 0


async def test_a_year_of_sleep_is_exact_to_the_nanosecond():
    # Float seconds lose nanoseconds after 26 days; integer sleeps must not.
    year = 365 * 86_400 * SECOND + 1
    await sleep_ns(year)
    await sleep_ns(1)
    assert now_ns() == year + 1
    await asyncio.sleep(1e-9)
    assert now_ns() == year + 2


async def test_task_group_gather_and_wait():
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(nap(1)), group.create_task(nap(2.5))
    assert (first.result(), second.result(), now_ns()) == (SECOND, 5 * SECOND // 2, 5 * SECOND // 2)
    assert await asyncio.gather(nap(1), nap(0.5)) == [7 * SECOND // 2, 3 * SECOND]
    done, pending = await asyncio.wait(
        [asyncio.create_task(nap(1)), asyncio.create_task(nap(9))], return_when=asyncio.FIRST_COMPLETED
    )
    assert (len(done), len(pending), now_ns()) == (1, 1, 9 * SECOND // 2)


async def test_timeouts_fire_on_virtual_time_and_leave_no_trace():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await asyncio.Event().wait()
    assert now_ns() == 3 * SECOND
    async with asyncio.timeout(100):
        await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(sleep_ns(10 * SECOND), 1)
    assert await asyncio.wait_for(asyncio.shield(nap(1)), 50) == now_ns() == 6 * SECOND


async def test_an_infinite_sleep_can_be_cancelled():
    sleeper = asyncio.create_task(asyncio.sleep(math.inf))
    await asyncio.sleep(1)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    assert now_ns() == SECOND


async def test_queue_lock_event_condition():
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
    log = []

    async def produce():
        for value in range(5):
            await queue.put(value)
            await asyncio.sleep(1)
        event.set()
        async with condition:
            condition.notify_all()

    async def consume():
        for _ in range(5):
            async with lock:
                log.append((await queue.get(), now_ns() // SECOND))
        await event.wait()

    async def wait_condition():
        async with condition:
            await condition.wait()
        log.append("notified")

    async with asyncio.TaskGroup() as group:
        for job in (produce(), consume(), wait_condition()):
            group.create_task(job)
    assert log == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), "notified"]


async def test_ready_callbacks_run_before_time_moves_and_timers_in_order():
    loop = asyncio.get_running_loop()
    log = []
    loop.call_at(0.0, log.append, "timer now")
    loop.call_later(2e-9, log.append, "b")
    loop.call_later(1e-9, log.append, "a")
    loop.call_later(2e-9, log.append, "c")
    loop.call_at_ns(2, log.append, "urgent", priority=0)
    cancelled = loop.call_at_ns(2, log.append, "never")
    cancelled.cancel()
    loop.post(2, log.append, "posted")
    loop.call_soon(log.append, "soon")
    await sleep_ns(3)
    assert log == ["soon", "timer now", "a", "urgent", "b", "c", "posted"]


async def test_the_past_is_refused():
    # Scheduling into the past would let time run backwards.
    loop = asyncio.get_running_loop()
    await sleep_ns(5)
    for schedule in (
        lambda: loop.post(4, print, 0),
        lambda: loop.call_at_ns(4, print),
        lambda: loop.sleep_until(4),
        lambda: sleep_ns(-1),
    ):
        with pytest.raises(ValueError, match="it is 5 ns already"):
            schedule()
    with pytest.raises(TypeError):
        loop.call_at_ns(7.0, print)


async def test_context_variables_follow_tasks_through_direct_wakes():
    # A direct wake runs inside the heap dispatch: without its own context the task would lose its variables.
    name = contextvars.ContextVar("name", default="nobody")

    async def party(own):
        name.set(own)
        for _ in range(3):
            await sleep_ns(10)
            assert name.get() == own

    await asyncio.gather(*(party(own) for own in ("server0", "server1", "user")))
    assert name.get() == "nobody"


async def test_async_generators_left_open_are_closed_in_order():
    log = []

    async def numbers(own):
        try:
            while True:
                yield own
        finally:
            await asyncio.sleep(1)
            log.append(own)

    generators = [numbers(own) for own in range(4)]
    for generator in generators:
        await anext(generator)
    await generators[2].aclose()
    await asyncio.get_running_loop().shutdown_asyncgens()
    assert log == [2, 0, 1, 3]


async def test_a_dropped_async_generator_is_closed_by_the_loop():
    log = []

    async def numbers():
        try:
            yield 1
        finally:
            log.append("closed")

    async for _ in numbers():
        break
    await asyncio.sleep(0.001)
    assert log == ["closed"]


async def test_failures_of_callbacks_reach_the_exception_handler(caplog):
    loop = asyncio.get_running_loop()
    reports = []
    loop.set_exception_handler(lambda _, context: reports.append(type(context["exception"])))
    loop.call_soon(lambda: 1 / 0)
    loop.call_later(1, lambda: {}["missing"])
    await asyncio.sleep(2)
    assert reports == [ZeroDivisionError, KeyError]
    loop.set_exception_handler(None)
    loop.call_soon(lambda: 1 / 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "ZeroDivisionError" in caplog.text


async def test_many_cancelled_timeouts_do_not_fill_the_queue():
    # Each message under a far deadline used to leave its cancelled timer behind until the deadline.
    loop = asyncio.get_running_loop()
    if loop._direct_env is None:
        pytest.skip("simpy's public API cannot take events back")
    for _ in range(1000):
        async with asyncio.timeout(1e6):
            await sleep_ns(1)
    assert len(loop.env._queue) < 200
    assert now_ns() == 1000


async def test_a_dropped_async_generator_is_not_closed_twice():
    reports = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context["message"]))

    async def numbers():
        try:
            yield 1
        finally:
            await sleep_ns(5)

    generator = numbers()
    await anext(generator)
    del generator
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await loop.shutdown_asyncgens()
    await sleep_ns(10)
    assert reports == []
