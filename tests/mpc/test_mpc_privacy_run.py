"""A whole private inference: what the servers' and the dealer's objects hold while it runs and afterwards."""

import numpy as np
import pytest
from object_walk import holds, reachable

from comet_sim.actors import Party
from comet_sim.baselines import SUITES
from comet_sim.events import Names
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import PrivateDecoder
from comet_sim.models.devices import DEVICES
from comet_sim.models.tensors import shapes as weight_shapes
from comet_sim.mpc import ring
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.simulation import stage
from comet_sim.trace import Recorder

VOCAB = 40_000
PROMPT = (39_123, 38_457, 37_891)
"""Ids that occur nowhere else in a run."""
CONFIG = ModelConfig(
    architecture="opt", name="tiny", layers=1, hidden=4, heads=2, kv_heads=2, head_dim=2, ffn=8, vocab=VOCAB,
    max_positions=16,
)  # fmt: skip


def recognisable_weights() -> dict[str, np.ndarray]:
    """Weights that each hold one number no other part of a run would."""
    forms = weight_shapes(CONFIG)
    return {name: np.full(form, 3.123 + 0.0173 * i) for i, (name, form) in enumerate(forms.items())}


def onehot_rows(things) -> list[object]:
    """Arrays that are a plain one-hot row of the vocabulary."""
    arrays = [thing for thing in things if isinstance(thing, np.ndarray) and thing.size % VOCAB == 0]
    return [array for array in arrays if array.size and np.isin(array, (0, 1)).all()]


class Look:
    """Walks what a party leads to, without the other parties, and keeps what should not be there."""

    def __init__(self, secrets: np.ndarray) -> None:
        self.secrets = secrets
        self.parties: dict[str, Party] = {}
        self.found: list[object] = []
        self.arrays: dict[str, int] = {}

    def at(self, name: str, *more: object) -> None:
        party = self.parties[name]
        world = party.world
        others = [other for other in self.parties.values() if other is not party]
        apart = (*others, world.observer, world.loop, world.network)
        things = [thing for root in (party, *more) for thing in reachable(root, apart)]
        self.found += holds(things, self.secrets) + onehot_rows(things)
        count = sum(isinstance(thing, np.ndarray) for thing in things)
        self.arrays[name] = max(count, self.arrays.get(name, 0))


@pytest.fixture
def look(monkeypatch):
    values = np.array([weight.flat[0] for weight in recognisable_weights().values()])
    # A server that had the ids as numbers would have them as they are, not in fixed point.
    look = Look(np.concatenate([ring.encode(values), np.array(PROMPT)]))

    class Watched(Party):
        __slots__ = ()

        def __init__(self, world, name, device):
            super().__init__(world, name, device)
            look.parties[name] = self

    monkeypatch.setattr(stage, "Party", Watched)
    return look


def test_servers_and_dealer_never_hold_a_plain_value(look, monkeypatch):
    """Weights, prompt and one-hot rows exist at their owners only: checked before and after every pass."""
    original = PrivateDecoder.forward

    async def forward(self, s, onehot, cache):
        name = s.party.name
        look.at(name, s, self, onehot)
        logits = await original(self, s, onehot, cache)
        look.at(name, s, self, onehot, cache, logits)
        return logits

    monkeypatch.setattr(PrivateDecoder, "forward", forward)
    run = stage.Inference(
        config=CONFIG,
        plan=Plan(len(PROMPT), 2, VOCAB),
        suite=SUITES["crypten"],
        topology=load_profile("lan-5g").resolve(stage.PARTIES),
        device=DEVICES["cpu"],
        seed=11,
        weights=recognisable_weights(),
        prompt=PROMPT,
    )
    outcome = stage.play(run, names := Names(), Recorder(names, None))
    assert len(outcome.token_ids) == 2
    for name in ("server0", "server1", "dealer"):
        look.at(name)
    assert not look.found
    # Every weight's share, the seeds and the KV cache: the walk saw them.
    assert min(look.arrays["server0"], look.arrays["server1"]) >= len(recognisable_weights())
    # The same walk at those who do hold the secrets.
    look.at("user")
    assert set(PROMPT) <= {thing for thing in look.found if isinstance(thing, int)}
