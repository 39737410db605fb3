"""The wake: resumed inside the heap dispatch, never inside a task, and cancelled like a future."""

from __future__ import annotations

import asyncio

import pytest

from comet_sim.kernel import Wake, now_ns, sleep_ns


def wake_of(waiting_for="a test"):
    return Wake(asyncio.get_running_loop(), waiting_for)


async def test_post_resumes_the_task_inside_the_dispatch():
    loop = asyncio.get_running_loop()
    log = []
    wake = wake_of()

    async def waiter():
        log.append(await wake)

    def deliver(value):
        log.append("before")
        wake.set(value)
        log.append("after")

    task = loop.create_task(waiter())
    loop.post(5, deliver, "value")
    await task
    assert log == ["before", "value", "after"]


async def test_never_inside_a_running_task():
    # A task that a direct wake has resumed sets another wake: resuming that inside would nest two tasks.
    loop = asyncio.get_running_loop()
    log = []
    first, second = wake_of(), wake_of()

    async def outer():
        await first
        second.set()
        log.append("outer goes on")

    async def inner():
        await second
        log.append("inner")
        assert asyncio.current_task() is tasks[1]

    tasks = [loop.create_task(outer()), loop.create_task(inner())]
    loop.post(1, first.set, None)
    await asyncio.gather(*tasks)
    assert log == ["outer goes on", "inner"]


@pytest.mark.parametrize("how", ["call_soon", "timer", "simpy"])
async def test_queued_outside_of_post(how):
    loop = asyncio.get_running_loop()
    log = []
    wake = wake_of()

    async def waiter():
        await wake
        log.append("woken")

    def set_it(*_):
        wake.set()
        log.append("set")

    task = loop.create_task(waiter())
    await asyncio.sleep(0)
    if how == "call_soon":
        loop.call_soon(set_it)
    elif how == "timer":
        loop.call_at_ns(1, set_it)
    else:
        loop.env.timeout(1).callbacks.append(set_it)
    await task
    assert log == ["set", "woken"]


async def test_set_before_await_and_twice():
    wake = wake_of("message 7")
    wake.set(3)
    assert wake.done() and not wake.cancelled()
    assert await wake == 3
    assert wake.exception() is None
    with pytest.raises(asyncio.InvalidStateError, match="waiting for message 7> is already set"):
        wake.set(4)
    with pytest.raises(asyncio.InvalidStateError):
        wake_of().result()


async def test_cancelling_the_task_cancels_the_wake():
    wake = wake_of()

    async def waiter():
        await wake

    task = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    task.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await task
    assert wake.cancelled() and not wake.cancel()
    with pytest.raises(asyncio.InvalidStateError, match="already cancelled"):
        wake.set()
    with pytest.raises(asyncio.CancelledError):
        await wake


async def test_cancelled_after_it_was_set_but_before_it_ran():
    # The value is gone then, as it is with a future; the task must still end as cancelled.
    wake = wake_of()

    async def waiter():
        await wake

    task = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    wake.set(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_waiting_task_only():
    wake = wake_of()

    async def waiter():
        return await wake

    first = asyncio.create_task(waiter())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="takes one only"):
        await asyncio.create_task(waiter())
    wake.set("x")
    assert await first == "x"


async def test_serves_gather_wait_wait_for_and_shield():
    assert await asyncio.gather(sleep_ns(2), sleep_ns(3)) == [None, None]
    done, _ = await asyncio.wait([sleep_ns(5)])
    assert len(done) == 1 and now_ns() == 8
    await asyncio.wait_for(asyncio.shield(sleep_ns(2)), 1)
    done, pending = await asyncio.wait([wake_of()], timeout=1e-6)
    assert (len(done), len(pending)) == (0, 1)
    assert now_ns() == 1010


async def test_a_wake_of_another_loop_is_refused():
    from comet_sim.kernel import VirtualLoop

    other = VirtualLoop()
    with pytest.raises(RuntimeError, match="attached to a different loop"):
        await Wake(other)
    other.close()


async def test_cancelled_sleep_does_not_wake():
    sleeper = sleep_ns(10)
    assert sleeper.cancel()
    await sleep_ns(20)
    assert now_ns() == 20
