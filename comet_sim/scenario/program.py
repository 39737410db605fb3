"""What a scenario's settings mean to the program the parties run."""

from __future__ import annotations

from comet_sim.baselines import SUITES, Suite
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import Layout
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.roles.plan import Plan
from comet_sim.scenario.schema import DEFAULT_STOCK, ProtocolSpec, Scenario, SystemSpec
from comet_sim.units import parse_size

__all__ = ["layout_of", "plan_of", "stock_of", "suite_of"]


def plan_of(
    scenario: Scenario, config: ModelConfig, prompt_tokens: int, system: SystemSpec | None = None
) -> Plan:
    """Return the public plan of a run of a system of the scenario (default: its first) on a model."""
    suite = suite_of(scenario.systems[0] if system is None else system)
    return Plan(
        prompt_tokens=prompt_tokens,
        output_tokens=scenario.workload.output_tokens,
        vocab=config.vocab,
        fraction_bits=scenario.protocol.fraction_bits,
        reveal=scenario.protocol.reveal,
        stop_at_eos=scenario.workload.stop == "eos",
        eos_id=config.eos_id,
        batch=scenario.workload.batch,
        truncation=suite.truncation or scenario.protocol.truncation,
    )


def layout_of(scenario: Scenario) -> Layout:
    """Return the choices of the forward pass."""
    protocol = scenario.protocol
    return Layout(
        qkv=protocol.qkv,
        final_norm=protocol.final_norm,
        weights=protocol.masking.weights,
        cache=protocol.masking.cache,
    )


def suite_of(system: SystemSpec) -> Suite:
    """Return the system's suite, with the variants it chooses one by one."""
    return SUITES[system.suite].choosing(system.variants.given())


def stock_of(protocol: ProtocolSpec) -> int:
    """Return how many correction elements a streaming dealer may run ahead."""
    return parse_size(protocol.dealer_stock or DEFAULT_STOCK) // WORD_BYTES
