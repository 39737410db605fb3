"""Cost of finding the active neurons' weights: by shuffle, and under MPC (oblivious selection).

Usage: python tools/indexing_costs.py [--network lan-5g] [--device a100] [--tokens 16]

One decode token of one feed-forward layer, over shapes: from the predictor's shared bits to the products on active
neurons, without the non-linearity between, which is the same for all. Prints a Markdown table. `--tokens`: how many
tokens an order lasts where it lasts longer than a call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

from comet_sim.comet.indexing import open_bits
from comet_sim.comet.selection import Selection, select_active
from comet_sim.comet.simm import simm
from comet_sim.comet.somm import somm
from comet_sim.models.catalogue import resolve_model
from comet_sim.models.config import ModelConfig
from comet_sim.models.devices import DEVICES
from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.correlated import Order
from comet_sim.mpc.session import Session
from comet_sim.mpc.shuffle import Shuffled, shuffle
from comet_sim.mpc.tensor import ShapeTensor
from comet_sim.network.profiles import load_profile
from comet_sim.testing.harness import ProtocolRun, Public, run_protocol

MODELS = {"opt-1.3b": 0.39, "opt-6.7b": 0.15, "llama2-7b": 0.15}
"""Share of neurons that is active: 61% sparse, and 85% for models of 7B, as the paper has it."""


@dataclass(frozen=True)
class Layer:
    """Sizes of one feed-forward layer, and which neurons are active."""

    config: ModelConfig
    mask: np.ndarray

    @property
    def firsts(self) -> int:
        """Matrices before the non-linearity."""
        return 2 if self.config.gated else 1

    @property
    def width(self) -> int:
        """Elements that belong to one neuron: its columns, its row, and biases of those models that have them."""
        return (self.firsts + 1) * self.config.hidden + (0 if self.config.gated else 1)

    @property
    def active(self) -> int:
        """Active neurons."""
        return int(self.mask.sum())


Program = Callable[[Session, Any, Any, Any], Coroutine[Any, Any, Any]]


def by_shuffle(layer: Layer, *, fresh: bool) -> Program:
    """Open the mask in a secret order (made in this call, if `fresh`); products on opened columns."""
    hidden, n = layer.config.hidden, layer.config.ffn
    rank = max(1, hidden // 8)

    async def program(s: Session, bits: Any, x: Any, table: Any) -> Any:
        if fresh:
            order = Order("weights", 0, n)
            # The predictor's outputs and biases follow, so that bits come out in the same order.
            predictor = s.ops.zeros((n, rank + 1))
            table, _ = await shuffle(s, order, [Shuffled(table), Shuffled(predictor)])
        await open_bits(s, bits)
        mask = np.ones((1, n), bool) if s.index == 2 else layer.mask[None]
        first = table[:, : layer.firsts * hidden].reshape((n * layer.firsts, hidden)).swapaxes(0, 1)
        inner, _ = await somm(s, x, first, np.repeat(mask, layer.firsts, 1))
        return await simm(s, inner[:, :n], table[:, -hidden:], mask[0])

    return program


def under_mpc(layer: Layer, way: Selection) -> Program:
    """Select the weights of as many neurons as are active; dense products on them."""
    hidden = layer.config.hidden

    async def program(s: Session, bits: Any, x: Any, table: Any) -> Any:
        chosen = await select_active(s, bits.reshape((bits.size,)), table, layer.active, way)
        rows = layer.active * layer.firsts
        first = chosen[:, : layer.firsts * hidden].reshape((rows, hidden)).swapaxes(0, 1)
        inner = await matmul(s, x, first)
        return await matmul(s, inner[:, : layer.active], chosen[:, -hidden:])

    return program


def play(layer: Layer, program: Program, network: str, device: str) -> ProtocolRun:
    """Run a program over shapes."""
    n, hidden = layer.config.ffn, layer.config.hidden
    shapes = [Public(ShapeTensor(shape)) for shape in ((1, n), (1, hidden), (n, layer.width))]
    topology = load_profile(network).resolve(("server0", "server1", "dealer"))
    return run_protocol(program, *shapes, exact=False, topology=topology, device=DEVICES[device])


def rows(name: str, density: float, tokens: int, network: str, device: str) -> list[list[str]]:
    """Return the table's rows for a model."""
    config = resolve_model(name).config
    rng = np.random.default_rng(0)
    layer = Layer(config, rng.permutation(config.ffn) < round(density * config.ffn))
    runs = {
        "order of the inference": play(layer, by_shuffle(layer, fresh=False), network, device),
        "order of a call": play(layer, by_shuffle(layer, fresh=True), network, device),
        "one-hot": play(layer, under_mpc(layer, "one-hot"), network, device),
        "compaction": play(layer, under_mpc(layer, "compaction"), network, device),
    }
    found = {way: (run.bytes, run.online_ns, run.corrections, run.rounds) for way, run in runs.items()}
    # An order that lasts: its making, shared by its tokens, on top of what each of them pays.
    lasting, call = found["order of the inference"], found["order of a call"]
    shared = tuple(a + (b - a) // tokens for a, b in zip(lasting[:3], call[:3], strict=True))
    found = {f"order of {tokens} tokens": (*shared, call[3]), **found}
    base = shared
    return [
        [
            name,
            way,
            f"{sent / 1e6:.1f}",
            f"{ns / 1e6:.1f}",
            str(depth),
            f"{8 * corrections / 1e6:,.0f}",
            f"{sent / base[0]:.2f}x",
            f"{ns / base[1]:.2f}x",
        ]
        for way, (sent, ns, corrections, depth) in found.items()
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="lan-5g")
    parser.add_argument("--device", default="a100", choices=sorted(DEVICES))
    parser.add_argument("--tokens", type=int, default=16)
    given = parser.parse_args()
    head = ["model", "indexing", "MB a server", "ms", "rounds", "dealer MB", "bytes", "time"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for name, density in MODELS.items():
        for row in rows(name, density, given.tokens, given.network, given.device):
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
