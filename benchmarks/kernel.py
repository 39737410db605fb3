"""Messages a second on the virtual loop against a tuned simpy program, interleaved in one process.

Both sides do the same work a message: link arithmetic (`busy_until`, bandwidth, latency) in integers, one
record of 16 integers appended to an `array('q')`, one wait of the receiving party. The simpy side is
written for speed: `Timeout` with a callback for delivery, a `Store` as mailbox, a process a party.

    python -m benchmarks.kernel [--messages N] [--repeats N] [--json] [--check]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from array import array
from collections.abc import Callable
from statistics import median
from time import perf_counter

import simpy

from comet_sim.kernel import VirtualLoop, Wake

RATE = 5_000_000_000
LATENCY = 100_000
SIZE = 1_448
TARGET = 1.5


class Record:
    """All messages of a run, 16 integers each."""

    def __init__(self) -> None:
        self.rows = array("q")

    def append(self, source: int, created: int, start: int, done: int, delivered: int) -> None:
        self.rows.extend(
            (
                len(self.rows) >> 4, 2, 7, source, 1 - source, SIZE, SIZE, 1, 0, -1,
                created, start - created, 0, 0, done - start, delivered - done,
            )
        )  # fmt: skip


class VirtualParty:
    """Party on the virtual loop: a mailbox with one wake, and the link that leads away from it."""

    __slots__ = ("busy_until", "inbox", "loop", "peer", "record", "source", "wake")

    def __init__(self, loop: VirtualLoop, record: Record, source: int) -> None:
        self.loop, self.record, self.source = loop, record, source
        self.busy_until = 0
        self.inbox: list[int] = []
        self.wake: Wake | None = None
        self.peer = self

    def send(self, value: int) -> None:
        now = self.loop.now_ns
        start = max(self.busy_until, now)
        done = self.busy_until = start - (-8 * SIZE * 1_000_000_000 // RATE)
        delivered = done + LATENCY
        self.record.append(self.source, now, start, done, delivered)
        self.loop.post(delivered, self.peer.deliver, value)

    def deliver(self, value: int) -> None:
        wake = self.wake
        if wake is None:
            self.inbox.append(value)
        else:
            self.wake = None
            wake.set(value)

    async def receive(self) -> int:
        if self.inbox:
            return self.inbox.pop()
        self.wake = wake = Wake(self.loop, self)
        value: int = await wake
        return value


class SimpyParty:
    """The same party as a tuned simpy program."""

    __slots__ = ("busy_until", "env", "inbox", "peer", "record", "source")

    def __init__(self, env: simpy.Environment, record: Record, source: int) -> None:
        self.env, self.record, self.source = env, record, source
        self.busy_until = 0
        self.inbox = simpy.Store(env)
        self.peer = self

    def send(self, value: int) -> None:
        now = int(self.env.now)
        start = max(self.busy_until, now)
        done = self.busy_until = start - (-8 * SIZE * 1_000_000_000 // RATE)
        delivered = done + LATENCY
        self.record.append(self.source, now, start, done, delivered)
        simpy.Timeout(self.env, delivered - now, value).callbacks.append(self.peer.deliver)

    def deliver(self, event: simpy.Event) -> None:
        self.inbox.put(event.value)


def virtual(program: str, messages: int) -> tuple[float, array[int]]:
    """Return the seconds the program takes on the virtual loop, and its record."""
    loop, record = VirtualLoop(), Record()
    parties = [VirtualParty(loop, record, source) for source in (0, 1)]
    parties[0].peer, parties[1].peer = parties[1], parties[0]

    async def exchange(party: VirtualParty) -> None:
        for value in range(messages // 2):
            party.send(value)
            await party.receive()

    async def ping(party: VirtualParty) -> None:
        for value in range(messages // 2):
            party.send(value)
            await party.receive()

    async def pong(party: VirtualParty) -> None:
        for _ in range(messages // 2):
            party.send(await party.receive())

    async def main() -> None:
        first, second = (exchange, exchange) if program == "exchange" else (ping, pong)
        other = loop.create_task(second(parties[1]))
        await first(parties[0])
        await other

    started = perf_counter()
    loop.run_until_complete(main())
    seconds = perf_counter() - started
    loop.close()
    return seconds, record.rows


def tuned_simpy(program: str, messages: int) -> tuple[float, array[int]]:
    """Return the seconds the program takes on simpy, and its record."""
    env, record = simpy.Environment(0), Record()
    parties = [SimpyParty(env, record, source) for source in (0, 1)]
    parties[0].peer, parties[1].peer = parties[1], parties[0]

    def exchange(party: SimpyParty) -> simpy.events.ProcessGenerator:
        get = party.inbox.get
        for value in range(messages // 2):
            party.send(value)
            yield get()

    def pong(party: SimpyParty) -> simpy.events.ProcessGenerator:
        get = party.inbox.get
        for _ in range(messages // 2):
            value = yield get()
            party.send(value)

    env.process(exchange(parties[0]))
    env.process((exchange if program == "exchange" else pong)(parties[1]))
    started = perf_counter()
    env.run()
    return perf_counter() - started, record.rows


def measure(program: str, messages: int, repeats: int) -> dict[str, float]:
    """Run both sides in turn, whichever first alternating, and return medians; the records must agree."""
    sides: list[Callable[[str, int], tuple[float, array[int]]]] = [virtual, tuned_simpy]
    times: dict[str, list[float]] = {"virtual": [], "tuned_simpy": []}
    for repeat in range(repeats):
        rows = []
        for side in sides if repeat % 2 else sides[::-1]:
            gc.collect()
            seconds, record = side(program, messages)
            times[side.__name__].append(seconds)
            rows.append(record)
        if rows[0] != rows[1]:
            raise SystemExit(f"{program}: the two programs recorded different messages")
    ratios = [slow / fast for fast, slow in zip(times["virtual"], times["tuned_simpy"], strict=True)]
    return {
        "virtual_per_s": messages / median(times["virtual"]),
        "simpy_per_s": messages / median(times["tuned_simpy"]),
        "ratio": median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, default=100_000, help="messages a run")
    parser.add_argument("--repeats", type=int, default=7, help="interleaved repeats")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--check", action="store_true", help=f"exit 1 when a median ratio is below {TARGET}")
    options = parser.parse_args()
    results = {name: measure(name, options.messages, options.repeats) for name in ("ping-pong", "exchange")}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        print(f"{'program':<10} {'virtual loop':>14} {'tuned simpy':>14} {'ratio':>7}  (range)")
        for name, row in results.items():
            spread = f"({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
            rates = f"{row['virtual_per_s']:>12,.0f}/s {row['simpy_per_s']:>12,.0f}/s"
            print(f"{name:<10} {rates} {row['ratio']:>6.2f}x  {spread}")
    return int(options.check and any(row["ratio"] < TARGET for row in results.values()))


if __name__ == "__main__":
    sys.exit(main())
