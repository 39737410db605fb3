"""Life cycle of the loop: running, nesting, stopping, failing, refusing the real world."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import warnings

import pytest

from comet_sim.kernel import RealIOError, VirtualLoop, Wake, now_ns, run, sleep_ns


async def three() -> int:
    await sleep_ns(3)
    return now_ns()


def test_nests_in_a_running_asyncio_loop():
    # A notebook runs a loop already; both loops' tasks must be current again afterwards.
    async def outer():
        before = asyncio.current_task()
        loop = VirtualLoop()
        try:
            assert loop.run_until_complete(three()) == 3
        finally:
            loop.close()
        assert run(three()) == 3
        assert asyncio.current_task() is before
        assert not isinstance(asyncio.get_running_loop(), VirtualLoop)
        await asyncio.sleep(0.001)
        return "outer done"

    assert asyncio.run(outer()) == "outer done"


def test_nests_in_itself_from_a_direct_wake():
    async def main():
        await sleep_ns(1)
        assert run(three()) == 3
        await sleep_ns(1)
        return now_ns()

    assert run(main()) == 2


def test_runner_runs_several_mains_on_one_clock():
    with asyncio.Runner(loop_factory=VirtualLoop, debug=True) as runner:
        assert runner.run(three()) == 3
        assert runner.run(three()) == 6
        assert runner.get_loop().get_debug()


def test_clock_helpers_name_the_wrong_loop():
    async def main():
        now_ns()

    with pytest.raises(RuntimeError, match="needs a VirtualLoop"):
        asyncio.run(main())


def test_run_until_complete_takes_futures_and_wakes():
    loop = VirtualLoop()
    wake = Wake(loop, "a value")
    loop.post(4, wake.set, "v")
    assert loop.run_until_complete(wake) == "v"
    future = loop.create_future()
    loop.call_at_ns(9, future.set_result, 1)
    assert loop.run_until_complete(future) == 1
    assert loop.now_ns == 9
    loop.close()
    loop.close()
    assert loop.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)


def test_stop_and_run_forever():
    loop = VirtualLoop()
    loop.call_at_ns(5, loop.stop)
    log = []
    loop.post(6, log.append, "later")
    loop.run_forever()
    assert (loop.now_ns, log) == (5, [])
    loop.run_forever()  # ends by itself: nothing is left and no task waits
    assert (loop.now_ns, log) == (6, ["later"])
    loop.call_soon(loop.stop)
    with pytest.raises(RuntimeError, match="stopped before"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_running_twice_is_refused():
    async def main():
        coroutine = three()
        with pytest.raises(RuntimeError, match="already running"):
            asyncio.get_running_loop().run_until_complete(coroutine)
        with pytest.raises(RuntimeError, match="running"):
            asyncio.get_running_loop().close()
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task is not asyncio.current_task()])

    run(main())


@pytest.mark.parametrize("internals", [True, False])
def test_a_failing_post_callback_ends_the_run(internals):
    # A link that fails must not be logged and forgotten while both parties wait.
    log = []

    async def main():
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cleaned up")

    def fail(_):
        raise ZeroDivisionError("in a link")

    loop = VirtualLoop(simpy_internals=internals)
    loop.post(7, fail, None)
    with pytest.raises(ZeroDivisionError, match="in a link"):
        loop.run_until_complete(main())
    assert loop.now_ns == 7
    loop.close()
    assert log == ["cleaned up"]


def test_close_cancels_what_is_pending():
    log = []

    async def worker():
        try:
            await asyncio.sleep(100)
        finally:
            await sleep_ns(2)
            log.append(now_ns())

    async def main():
        asyncio.create_task(worker())  # noqa: RUF006
        await sleep_ns(1)

    loop = VirtualLoop()
    loop.run_until_complete(main())
    loop.close()
    assert log == [3]


def test_an_eager_or_plain_task_factory_is_used():
    loop = VirtualLoop()
    made = []

    def factory(loop, coro, context=None):
        made.append(coro.__name__)
        return asyncio.Task(coro, loop=loop, context=context)

    loop.set_task_factory(factory)
    assert loop.run_until_complete(loop.create_task(three(), name="mine")) == 3
    assert made == ["three"]
    assert loop.get_task_factory() is factory
    loop.close()


@pytest.mark.parametrize(
    "use",
    [
        lambda loop: loop.run_in_executor(None, print),
        lambda loop: asyncio.to_thread(print),
        lambda loop: asyncio.open_connection("localhost", 1),
        lambda loop: loop.getaddrinfo("localhost", 1),
        lambda loop: asyncio.create_subprocess_exec("true"),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.add_signal_handler(signal.SIGTERM, print),
        lambda loop: loop.connect_read_pipe(print, None),
        lambda loop: loop.sock_recv(None, 1),
    ],
)
def test_the_real_world_is_refused(use):
    async def main():
        await use(asyncio.get_running_loop())

    with pytest.raises(RealIOError, match="cannot be used on a virtual clock"):
        run(main())


def test_no_method_of_asyncio_loops_is_left_unanswered():
    # A method that only raised NotImplementedError would not say why.
    ours = {name for cls in VirtualLoop.__mro__[:-2] for name in vars(cls)}
    theirs = {name for name in vars(asyncio.AbstractEventLoop) if not name.startswith("__")}
    assert theirs - ours == set()


def test_other_threads_are_refused():
    failures = []

    async def main():
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(failures.append, "own thread")

        def other():
            try:
                loop.call_soon_threadsafe(print)
            except RealIOError as error:
                failures.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        await asyncio.sleep(0)

    run(main())
    assert sorted(failures) == [
        "loop.call_soon_threadsafe: other threads cannot be used on a virtual clock",
        "own thread",
    ]


def test_runs_in_a_thread_of_its_own():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(three())))
    thread.start()
    thread.join()
    assert results == [3]


CTRL_C = """
import asyncio, os, signal
from comet_sim.kernel import run, sleep_ns, now_ns

async def worker():
    try:
        while True:
            await sleep_ns(1_000)
    finally:
        print("worker cleaned up")

async def main():
    asyncio.get_running_loop().post(5_000_000, lambda pid: os.kill(pid, signal.SIGINT), os.getpid())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(worker())
    finally:
        print("main cleaned up")

try:
    run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_ends_the_run_with_clean_up():
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", CTRL_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.split("\n"), done.stderr) == (
        ["worker cleaned up", "main cleaned up", "interrupted", ""],
        "",
    )


def test_keyboard_interrupt_in_a_task_leaves_at_once():
    async def main():
        await sleep_ns(1)
        raise KeyboardInterrupt

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            run(main())


def test_stop_ends_a_program_that_is_always_ready():
    # Draining until nothing is ready would never look at the stop.
    loop = VirtualLoop()

    def again():
        loop.call_soon(again)

    again()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()


def test_the_thread_is_given_back_as_it_was():
    before = (
        sys.get_asyncgen_hooks(),
        sys.get_coroutine_origin_tracking_depth(),
        asyncio._get_running_loop(),
    )
    with asyncio.Runner(loop_factory=VirtualLoop, debug=True) as runner:
        runner.run(three())
    after = (sys.get_asyncgen_hooks(), sys.get_coroutine_origin_tracking_depth(), asyncio._get_running_loop())
    assert after == before


def test_a_float_time_that_is_past_is_due_now():
    # `asyncio.timeout_at` and a float clock a nanosecond late must not fail.
    async def main():
        await sleep_ns(10)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout_at(5e-9):
                await asyncio.Event().wait()
        asyncio.get_running_loop().call_at(-1.0, print)
        return now_ns()

    assert run(main()) == 10
