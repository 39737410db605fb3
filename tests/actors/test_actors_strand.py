"""Strands: what leaves when, how deep it is, what caused it, and that work and messages take their time."""

import pytest

from comet_sim.actors import Device, DeviceProfile, Strand
from comet_sim.events import NO_CAUSE
from comet_sim.kernel import DeadlockError

DELAY = 1_000
SLOW = DeviceProfile("slow", 1_000_000_000, 0, 100, "test")  # 1 ns a ring operation, 100 ns an operation


async def rounds(strand, peer, count):
    for number in range(count):
        with strand.scope(f"round{number}"):
            await strand.exchange(peer, b"12345678")
    return strand.depth


@pytest.mark.parametrize("count", [1, 5])
def test_rounds_take_one_delay_each(make_stage, count):
    stage = make_stage()
    depths = stage.play(a=rounds(Strand(stage.a), stage.b, count), b=rounds(Strand(stage.b), stage.a, count))
    assert depths == {"a": count, "b": count}
    assert stage.loop.now_ns == count * DELAY
    assert [message.depth for message in stage.seen.messages] == [
        n for n in range(1, count + 1) for _ in "ab"
    ]
    assert stage.names.text(stage.seen.messages[-1].path) == f"round{count - 1}"
    assert stage.a.mailbox.unclaimed() == stage.b.mailbox.unclaimed() == 0


def test_a_message_leaves_when_the_work_before_it_is_done(make_stage):
    """And the next span is charged after the message arrived, with that message as its cause."""
    stage = make_stage(SLOW)

    async def work(strand, peer):
        strand.charge(400, 0)
        await strand.exchange(peer, b"x")
        strand.charge(50, 0)
        await strand.settle()
        return strand.world.loop.now_ns

    done = stage.play(a=work(Strand(stage.a), stage.b), b=work(Strand(stage.b), stage.a))
    assert done == {"a": 500 + DELAY + 150, "b": 500 + DELAY + 150}
    first, _, second, _ = stage.seen.spans
    sent = stage.seen.messages[0]
    assert (first.cause, first.start, first.end, first.ring_ops) == (NO_CAUSE, 0, 500, 400)
    assert (sent.cause, sent.created, sent.delivered) == (first.id, 500, 500 + DELAY)
    received = next(message for message in stage.seen.messages if message.dst == second.party)
    assert (second.cause, second.ready, second.end) == (received.id, 500 + DELAY, 650 + DELAY)


def test_who_computes_longer_is_caused_by_its_own_work(make_stage):
    """A message that arrives while its receiver still computes has enabled nothing yet."""
    stage = make_stage(SLOW)

    async def work(strand, peer, ring_ops):
        strand.charge(ring_ops, 0)
        await strand.exchange(peer, b"x")
        strand.charge(1, 0)
        await strand.settle()

    stage.play(a=work(Strand(stage.a), stage.b, 0), b=work(Strand(stage.b), stage.a, 9_000))
    mine = [span for span in stage.seen.spans if span.party == stage.b.id]
    assert mine[1].cause == mine[0].id
    assert mine[1].ready == mine[0].end == 9_100
    peers = [span for span in stage.seen.spans if span.party == stage.a.id]
    assert peers[1].ready == 9_100 + DELAY


def test_a_span_is_named_after_its_largest_part(make_stage):
    stage = make_stage(SLOW)

    async def work(strand):
        with strand.scope("end"):
            strand.charge(5, 0)
        with strand.scope("start"):
            strand.charge(500, 0)
        strand.charge(1, 0)
        await strand.settle()

    stage.play(a=work(Strand(stage.a)))
    (span,) = stage.seen.spans
    assert stage.names.text(span.path) == "start"
    assert (span.ring_ops, span.end - span.start) == (506, 506 + 3 * 100)


def test_children_share_the_device_but_not_the_link_delay(make_stage):
    """Two children compute one after the other; three exchanges side by side are one round."""
    stage = make_stage(SLOW)

    async def part(child, peer):
        child.charge(200, 0)
        await child.exchange(peer, b"x")

    async def program(strand, peer):
        await strand.gather(*[lambda child: part(child, peer) for _ in range(3)])
        return strand.depth, strand.world.loop.now_ns

    done = stage.play(a=program(Strand(stage.a), stage.b), b=program(Strand(stage.b), stage.a))
    assert done == dict.fromkeys("ab", (1, 3 * 300 + DELAY))
    starts = [(span.ready, span.start) for span in stage.seen.spans if span.party == stage.a.id]
    assert starts == [(0, 0), (0, 300), (0, 600)]
    assert {message.depth for message in stage.seen.messages} == {1}


def test_a_join_is_as_deep_as_its_deepest_child(make_stage):
    stage = make_stage()

    async def program(strand, peer):
        await strand.exchange(peer, b"x")
        await strand.gather(*[lambda child, n=n: rounds(child, peer, n) for n in (2, 0, 3)])
        joined = strand.depth
        await strand.exchange(peer, b"x")
        return joined, strand.depth

    done = stage.play(a=program(Strand(stage.a), stage.b), b=program(Strand(stage.b), stage.a))
    assert done == {"a": (4, 5), "b": (4, 5)}
    last = stage.seen.messages[-1]
    causes = {message.id: message for message in stage.seen.messages}
    assert causes[last.cause].depth == 4, "the join was enabled by the child that finished last"


def test_forks_have_the_same_names_everywhere_and_never_twice(make_stage):
    """Tags and dealt randomness hang on these names: a collision would hand out a mask twice."""
    stage = make_stage()

    def names_of(strand, depth):
        children = [strand.fork() for _ in range(8)]
        below = [name for child in children for name in names_of(child, depth - 1)] if depth else []
        return [child.id for child in children] + below

    mine, peers = (names_of(Strand(party), 3) for party in (stage.a, stage.b))
    assert mine == peers
    assert len(set(mine) | {0}) == len(mine) + 1 == 8 + 8**2 + 8**3 + 8**4 + 1
    assert all(0 <= name < 1 << 63 for name in mine), "positions are packed as signed 64-bit words"


def test_an_early_message_is_kept_and_a_second_under_its_tag_refused(make_stage):
    stage = make_stage()

    async def send(strand, peer):
        strand.send(peer, "early", b"1")

    async def late(strand, peer):
        await strand.world.loop.sleep_until(5 * DELAY)
        return await strand.receive(peer, "early"), strand.depth

    assert stage.play(a=send(Strand(stage.a), stage.b), b=late(Strand(stage.b), stage.a))["b"] == (b"1", 1)

    async def twice(strand, peer):
        strand.send(peer, "same", b"1")
        strand.send(peer, "same", b"2")
        await strand.world.loop.sleep_until(9 * DELAY)

    with pytest.raises(RuntimeError, match="tags must be unique"):
        stage.play(a=twice(Strand(stage.a), stage.b))


def test_a_deadlock_names_the_party_and_the_op_it_waits_in(make_stage):
    stage = make_stage()

    async def wait(strand, peer):
        with strand.scope("layer3"), strand.scope("softmax"):
            await strand.receive(peer, "never")

    with pytest.raises(DeadlockError, match="a message from b for op layer3/softmax"):
        stage.play(a=wait(Strand(stage.a), stage.b))


@pytest.mark.parametrize(
    ("ring_ops", "moved", "launches", "cost"),
    [(0, 0, 0, 0), (1, 0, 0, 1), (10, 0, 0, 4), (0, 10, 0, 5), (9, 2, 3, 24), (0, 1, 0, 1), (2, 5, 0, 3)],
)
def test_roofline_rounds_up(ring_ops, moved, launches, cost):
    """3 ring operations and 2 bytes a ns, 7 ns a launch: the slower of arithmetic and memory counts."""
    profile = DeviceProfile("test", 3_000_000_000, 2_000_000_000, 7, "test")
    assert profile.cost(ring_ops, moved, launches) == cost


def test_a_device_does_one_thing_at_a_time():
    device = Device(SLOW)
    assert [device.reserve(*request) for request in ((10, 5), (11, 5), (30, 0), (30, 2))] == [
        (10, 15), (15, 20), (30, 30), (30, 32),
    ]  # fmt: skip
