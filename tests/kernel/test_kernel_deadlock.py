"""A run that can go no further says who waits for what, and can be closed without noise."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from comet_sim.kernel import DeadlockError, VirtualLoop, Wake, run, sleep_ns


class Costly:
    """Stands for what a mailbox waits for; its text must be made for the report only."""

    texts = 0

    def __str__(self):
        Costly.texts += 1
        return "message 12 of multiply from server1"


async def receive(loop):
    await Wake(loop, Costly())


async def layers(loop):
    yield 1
    await receive(loop)


async def party(loop):
    async for _ in layers(loop):
        pass


async def consumer():
    await asyncio.Queue().get()


async def deadlocked():
    loop = asyncio.get_running_loop()
    await sleep_ns(42)
    async with asyncio.TaskGroup() as group:
        group.create_task(party(loop), name="server0")
        group.create_task(consumer(), name="user")


@pytest.mark.parametrize("internals", [True, False])
def test_names_tasks_chains_and_subjects(internals):
    Costly.texts = 0
    with pytest.raises(DeadlockError) as caught:
        run(deadlocked(), loop_factory=lambda: VirtualLoop(simpy_internals=internals))
    error = caught.value
    assert (error.exit_code, error.time_ns, Costly.texts) == (3, 42, 1)
    main, server, user = error.tasks
    assert main.name == "Task-1" and main.waiting_for == "a Future"
    assert [step.split(" (")[0] for step in main.chain[:2]] == ["deadlocked", "TaskGroup.__aexit__"]
    assert server.waiting_for == "message 12 of multiply from server1"
    assert [step.split(" (")[0] for step in server.chain] == ["party", "layers", "receive"]
    line = receive.__code__.co_firstlineno + 1
    assert server.chain[-1] == f"receive (kernel/test_kernel_deadlock.py:{line})"
    assert [step.split(" (")[0] for step in user.chain] == ["consumer", "Queue.get"]
    text = str(error)
    assert text.startswith("deadlock at 42 ns of virtual time: 3 pending, nothing left to happen\n")
    assert "  server0 waits for message 12 of multiply from server1\n    at party (" in text


def test_tasks_that_wait_for_each_other():
    async def main():
        async def wait_for(name):
            await asyncio.sleep(0)
            await tasks[name]

        tasks = {
            "a": asyncio.create_task(wait_for("b"), name="a"),
            "b": asyncio.create_task(wait_for("c"), name="b"),
            "c": asyncio.create_task(asyncio.Event().wait(), name="c"),
        }
        await tasks["a"]

    with pytest.raises(DeadlockError, match=r"a waits for task b\n") as caught:
        run(main())
    assert [task.name for task in caught.value.tasks] == ["Task-1", "a", "b", "c"]


def test_cancelled_timers_do_not_hold_a_deadlock_up():
    # A cancelled deadline was once taken for something that would still happen, at its time.
    async def main():
        async with asyncio.timeout(1000):
            await sleep_ns(5)
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError, match="deadlock at 5 ns"):
        run(main())


def test_a_long_report_is_cut():
    async def main():
        await asyncio.gather(*(asyncio.Event().wait() for _ in range(100)))

    with pytest.raises(DeadlockError, match="and 69 more") as caught:
        run(main())
    assert len(caught.value.tasks) == 101


def test_without_any_task():
    loop = VirtualLoop()
    with pytest.raises(DeadlockError, match="0 pending"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_closing_after_it_is_silent(caplog):
    # "Task was destroyed but it is pending" used to bury the report.
    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def main():
        asyncio.create_task(stubborn())  # noqa: RUF006
        await asyncio.Event().wait()

    with caplog.at_level(logging.DEBUG, "asyncio"):
        loop = VirtualLoop()
        with pytest.raises(DeadlockError):
            loop.run_until_complete(main())
        loop.close()
        del loop
        gc.collect()
    assert caplog.text == ""
