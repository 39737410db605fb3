"""A whole run: same trace exact and as shapes, same digest anywhere, bytes conserved, times add up."""

import asyncio
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from comet_sim.baselines import SUITES
from comet_sim.events import Names
from comet_sim.models.decoder import Layout
from comet_sim.models.demo import load_demo
from comet_sim.models.devices import DEVICES
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.scenario import ProtocolSpec, Scenario, WorkloadSpec
from comet_sim.simulation import simulate, simulate_async
from comet_sim.simulation.stage import PARTIES, Inference, play
from comet_sim.trace import Recorder, Trace, critical_path, rounds

TOKENS = 3


def scenario(execution: str = "exact", seed: int = 1, **settings: object) -> Scenario:
    workload = WorkloadSpec(prompt_tokens=16, output_tokens=TOKENS)
    return Scenario(model="opt-demo", execution=execution, seed=seed, workload=workload, **settings)


@pytest.fixture(scope="module")
def exact():
    return simulate(scenario())


@pytest.mark.parametrize(
    "protocol",
    [
        ProtocolSpec(),
        ProtocolSpec(qkv="parallel"),
        ProtocolSpec(qkv="sequence", final_norm="all", reveal="servers"),
        ProtocolSpec(fraction_bits=18),
    ],
    ids=["default", "forked", "as-crypten", "18-bits"],
)
def test_shape_run_has_the_exact_runs_trace(protocol):
    """Record for record: the digest covers every field of every record."""
    traces = [simulate(scenario(execution, protocol=protocol)).trace for execution in ("exact", "shape")]
    assert traces[0].digest == traces[1].digest
    for table in ("messages", "compute", "reveals", "dealer"):
        assert traces[0].table(table).to_pylist() == traces[1].table(table).to_pylist()


def test_replayed_transcripts_equal_the_full_walk(monkeypatch):
    """Replaying a protocol's rounds once recorded must leave the trace of running its coroutine each time."""
    checkpoint = load_demo()

    def digest(replay: bool) -> str:
        with monkeypatch.context() as patch:
            if not replay:
                from comet_sim.mpc.session import Session

                # Sessions of this run forget the cache they are given.
                patch.setattr(Session, "transcripts", property(lambda self: None, lambda self, value: None))
            names = Names()
            recorder = Recorder(names, None)
            run = Inference(
                config=checkpoint.config,
                plan=Plan(16, TOKENS, checkpoint.config.vocab),
                suite=SUITES["crypten"],
                topology=load_profile("wan-100m").resolve(PARTIES),
                device=DEVICES["cpu"],
                seed=1,
                layout=Layout(),
            )
            play(run, names, recorder)
            return str(Trace.of(recorder).digest)

    assert digest(replay=True) == digest(replay=False)


def test_digest_is_the_same_under_any_hash_seed(exact):
    """Nothing in a run may follow the order of a set or a hash."""
    code = (
        "from comet_sim.scenario import Scenario, WorkloadSpec\n"
        "from comet_sim.simulation import simulate\n"
        f"w = WorkloadSpec(prompt_tokens=16, output_tokens={TOKENS})\n"
        "print(simulate(Scenario(model='opt-demo', seed=1, workload=w)).trace.digest)"
    )
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        out = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert out.stdout.strip() == exact.trace.digest


def test_another_seed_gives_other_shares_but_the_same_traffic(exact):
    """Bytes, rounds, times and text do not depend on the randomness; the shares do (tests/mpc)."""
    other = simulate(scenario(seed=2))
    assert other.token_ids == exact.token_ids
    assert other.trace.digest == exact.trace.digest, "a trace holds no values, so it is the same too"


def test_bytes_are_conserved(exact):
    """Bytes by message, by link, by phase and by op are the same bytes, and those of the buffers sent."""
    checkpoint = load_demo()
    names = Names()
    sent: dict[tuple[int, int], int] = {}
    recorder = Recorder(names, None)
    run = Inference(
        config=checkpoint.config,
        plan=Plan(16, TOKENS, checkpoint.config.vocab),
        suite=SUITES["crypten"],
        topology=load_profile("lan-5g").resolve(PARTIES),
        device=DEVICES["cpu"],
        seed=1,
        exponents=checkpoint.metadata.norm_scales,
        weights=checkpoint.weights,
        prompt=(5,) * 16,
    )

    from comet_sim.network import Network

    original = Network.send

    def send(self, envelope):
        assert len(envelope.payload) == envelope.payload_bytes
        key = (envelope.src, envelope.dst)
        sent[key] = sent.get(key, 0) + len(envelope.payload)
        original(self, envelope)

    try:
        Network.send = send
        play(run, names, recorder)
    finally:
        Network.send = original
    trace = Trace.of(recorder)
    messages = trace.messages
    by_pair: dict[tuple[str, str], int] = {}
    for src, dst, payload in zip(
        messages["src"].to_pylist(), messages["dst"].to_pylist(), messages["payload"].to_pylist(), strict=True
    ):
        by_pair[src, dst] = by_pair.get((src, dst), 0) + payload
    assert by_pair == {(names.text(a), names.text(b)): size for (a, b), size in sent.items()}


def test_parts_of_every_message_add_up(exact):
    """created + queued + host + stall + serialise + propagate = delivered, and links keep their order."""
    messages = exact.trace.messages
    column = {name: messages[name].to_numpy() for name in messages.column_names if name not in ("path",)}
    total = sum(column[part] for part in ("created", "queued", "host", "stall", "serialise", "propagate"))
    assert (total == column["delivered"]).all()
    for pair in {(a, b) for a, b in zip(column["src"], column["dst"], strict=True)}:
        mine = (column["src"] == pair[0]) & (column["dst"] == pair[1])
        assert (np.diff(column["delivered"][mine]) >= 0).all()


def test_every_cause_ended_when_its_effect_began(exact):
    """The critical path explains the whole online time: no gap between a cause and what it enabled."""
    path = critical_path(exact.trace, "online")
    assert path.parts["gap"] == 0
    assert sum(path.parts.values()) == path.makespan
    assert path.makespan == exact.summary["phases"]["online"]["time_ns"]


def test_summary_agrees_with_the_trace(exact):
    summary = json.loads(json.dumps(exact.summary))
    online = summary["phases"]["online"]
    assert online["bytes"]["server0"] == online["bytes"]["server1"] > 0
    assert summary["phases"]["set-up"]["bytes"]["owner"] == 8 * load_demo().config.parameters + 16
    assert summary["phases"]["offline"]["bytes"]["dealer"] == 8 * summary["dealer"]["correction_elements"]
    assert summary["dealer"]["unused_elements"] == 0
    assert sum(row["time_ns"] for row in summary["where"]) == online["time_ns"]
    assert summary["first_token_ns"] + summary["token_ns"] * (TOKENS - 1) == pytest.approx(
        online["time_ns"], rel=1e-6
    )
    assert rounds(exact.trace, "token0/layer0/ffn/relu") == 9


def test_the_ledger_says_what_was_revealed(exact):
    rows = {(row["what"], row["audience"]): row for row in exact.summary["reveals"]}
    assert set(rows) == {("norm exponents", "server0,server1"), ("logits", "user")}
    assert rows["logits", "user"]["elements"] == TOKENS * load_demo().config.vocab


def test_servers_reveal_is_in_the_ledger():
    result = simulate(scenario("shape", protocol=ProtocolSpec(reveal="servers")))
    assert ("logits", "server0,server1") in {
        (row["what"], row["audience"]) for row in result.summary["reveals"]
    }


async def test_runs_inside_a_running_loop(exact):
    """As in a notebook: `simulate` blocks the loop, `simulate_async` leaves it free."""
    assert simulate(scenario("shape")).trace.digest == exact.trace.digest
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticker = asyncio.create_task(tick())
    result = await simulate_async(scenario("shape"))
    ticker.cancel()
    assert result.trace.digest == exact.trace.digest
    assert ticks > 1


def test_eos_ends_the_run_and_tells_both_servers(monkeypatch):
    """With stop = "eos" the user's byte stops the servers; the dealer dealt for the longest run."""
    settings = {"workload": WorkloadSpec(prompt_tokens=16, output_tokens=6)}
    full = simulate(Scenario(model="opt-demo", seed=1, **settings))
    import comet_sim.simulation as simulation

    original = simulation._inference

    def with_eos(*arguments):
        from dataclasses import replace

        run = original(*arguments)
        return replace(run, plan=replace(run.plan, eos_id=full.token_ids[2]))

    monkeypatch.setattr(simulation, "_inference", with_eos)
    stopped = simulate(
        Scenario(
            model="opt-demo", seed=1, workload=WorkloadSpec(prompt_tokens=16, output_tokens=6, stop="eos")
        )
    )
    assert stopped.token_ids == full.token_ids[:3]
    assert stopped.summary["dealer"]["unused_elements"] > 0
    words = stopped.trace.messages.to_pydict()
    goes = [path for path, size in zip(words["path"], words["payload"], strict=True) if size == 1]
    assert len(goes) == 2 * 3, "two continues and one stop, to each server"
