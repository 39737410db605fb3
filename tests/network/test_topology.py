from __future__ import annotations

import subprocess
import sys

import pytest
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.events import NO_CAUSE, Message, Names, Phase
from comet_sim.network import Envelope, LinkConfig, Network, Topology


def fixed(delay: int, rate: int | None = None, host: int = 0) -> LinkConfig:
    return LinkConfig(rate=rate, delay=delay, packet_overhead=0, mss=10**6, host=host)


class Run:
    """A network on a fake clock that logs records and deliveries in the order they happen."""

    def __init__(self, topology: Topology) -> None:
        self.clock = FakeClock()
        self.names = Names()
        self.log: list[tuple[str, int, int]] = []
        self.records: list[Message] = []
        self.network = Network(self.clock, topology, self._deliver, self._observe, self.names)

    def _deliver(self, envelope: Envelope) -> None:
        self.log.append(("deliver", envelope.id, self.clock.now_ns))

    def _observe(self, record: Message) -> None:
        self.log.append(("observe", record.id, self.clock.now_ns))
        self.records.append(record)

    def send(self, id: int, src: str, dst: str, size: int, when: int = 0) -> None:
        ends = self.names.intern(src), self.names.intern(dst)
        self.clock.post(
            when,
            self.network.send,
            Envelope(id, Phase.ONLINE, 0, *ends, id, None, size, 0, 0, NO_CAUSE, when),
        )


def test_record_comes_just_before_delivery() -> None:
    """A receiver that reacts at once must find its cause already recorded."""
    run = Run(Topology(("a", "b"), {("a", "b"): fixed(10), ("b", "a"): fixed(3)}))
    run.send(0, "a", "b", 1)
    run.send(1, "b", "a", 1)
    run.clock.run()
    assert run.log == [("observe", 1, 3), ("deliver", 1, 3), ("observe", 0, 10), ("deliver", 0, 10)]


def test_store_and_forward_by_hand() -> None:
    # 1 ns a byte on the first hop, 10 ns a byte on the second; 68 + 32 = 100 bytes a message
    links = {("a", "r"): fixed(5, 8 * 10**9, host=2), ("r", "b"): fixed(7, 8 * 10**8)}
    run = Run(Topology(("a", "b"), links, routers=("r",)))
    run.send(0, "a", "b", 68)
    run.send(1, "a", "b", 68)
    run.clock.run()
    first, second = run.records
    assert first.delivered == (2 + 100 + 5) + (1000 + 7) == 1114
    assert second.delivered == first.delivered + 1000
    assert (second.queued, second.host, second.serialise, second.propagate) == (100 + 900, 2, 1100, 12)
    assert first.wire == 100  # the first link only: a relayed byte is not sent twice by its party
    assert run.network.links["r", "b"].wire_bytes == 200


def test_routes_prefer_delay_then_hops_then_names() -> None:
    links = {
        ("a", "r2"): fixed(5),
        ("r2", "b"): fixed(5),
        ("a", "r1"): fixed(5),
        ("r1", "b"): fixed(5),
        ("a", "r3"): fixed(5),
        ("r3", "r4"): fixed(0),
        ("r4", "b"): fixed(5),
        ("b", "a"): fixed(100),
        ("b", "r1"): fixed(1),
        ("r1", "a"): fixed(1),
    }
    routes = Topology(("a", "b"), links, routers=("r1", "r2", "r3", "r4")).routes()
    assert routes == {("a", "b"): ("a", "r1", "b"), ("b", "a"): ("b", "r1", "a")}


def test_parties_do_not_forward() -> None:
    """The user's traffic to one server must never pass through the other, however near they are."""
    links = {("u", "s0"): fixed(1), ("s0", "s1"): fixed(1), ("u", "s1"): fixed(50), ("r", "s1"): fixed(1)}
    topology = Topology(("u", "s0", "s1"), links, routers=("r",))
    assert topology.routes() == {pair: pair for pair in links if pair[0] != "r"}
    assert topology.graph().edges["u", "s1"]["config"].delay == 50


def test_zero_delay_cycle_ends() -> None:
    links = {(x, y): fixed(0) for x in "arsb" for y in "arsb" if x != y and {x, y} != {"a", "b"}}
    assert Topology("ab", links, routers="rs").routes() == {
        ("a", "b"): ("a", "r", "b"),
        ("b", "a"): ("b", "r", "a"),
    }


def test_unknown_route_names_the_pair() -> None:
    run = Run(Topology(("a", "b"), {("a", "b"): fixed(1)}))
    run.send(0, "b", "a", 1)
    with pytest.raises(InputError, match="no route from b to a; its links: a->b"):
        run.clock.run()


def test_bad_topologies() -> None:
    with pytest.raises(InputError, match=r"a->c cannot be built: c is unknown \(known: a, b\)"):
        Topology("ab", {("a", "c"): fixed(1)})
    with pytest.raises(InputError, match="loop"):
        Topology("ab", {("a", "a"): fixed(1)})
    with pytest.raises(InputError, match="named twice"):
        Topology("ab", {}, routers="b")


@given(st.lists(st.tuples(st.integers(0, 10**5), st.sampled_from("abc"), st.integers(0, 5000)), max_size=30))
def test_parts_add_up_over_hops(sends: list[tuple[int, str, int]]) -> None:
    links = {
        **{(party, "r"): fixed(500, 10**9, host=20) for party in "abc"},
        **{("r", party): fixed(300, 10**8) for party in "abc"},
    }
    run = Run(Topology("abc", links, routers="r"))
    for id, (when, src, size) in enumerate(sends):
        run.send(id, src, {"a": "b", "b": "c", "c": "a"}[src], size, when)
    run.clock.run()
    times = {id: when for what, id, when in run.log if what == "deliver"}
    assert {record.id: record.delivered for record in run.records} == times
    assert sorted(times) == list(range(len(sends)))
    payload = sum(size for _, _, size in sends)
    for side in (0, 1):
        assert (
            sum(link.payload_bytes for ends, link in run.network.links.items() if ends[side] == "r")
            == payload
        )


def test_a_run_without_routers_does_not_import_networkx() -> None:
    """Networkx takes longer to import than everything else a small run needs."""
    code = (
        "import sys; from comet_sim.network import Topology, LinkConfig; "
        "Topology('ab', {('a', 'b'): LinkConfig(None, 0)}).routes(); "
        "sys.exit('networkx' in sys.modules or 'pydantic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
