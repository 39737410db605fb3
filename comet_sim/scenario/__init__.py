"""Scenarios: what a user writes, checked, completed and kept beside the results."""

from comet_sim.scenario.load import (
    load_scenario,
    parse_override,
    scenario_dir,
    scenario_from_dict,
    shipped_scenarios,
)
from comet_sim.scenario.prepare import Prepared, Prompt, prepare
from comet_sim.scenario.runs import RunFolder, run_name, write_summary
from comet_sim.scenario.schema import (
    ComputeSpec,
    MaskingSpec,
    NetworkChoice,
    ProtocolSpec,
    Scenario,
    SettingError,
    SystemSpec,
    WorkloadSpec,
    json_schema,
)
from comet_sim.scenario.toml import dump
from comet_sim.scenario.whole import shielded, write_whole

__all__ = [
    "ComputeSpec",
    "MaskingSpec",
    "NetworkChoice",
    "Prepared",
    "Prompt",
    "ProtocolSpec",
    "RunFolder",
    "Scenario",
    "SettingError",
    "SystemSpec",
    "WorkloadSpec",
    "dump",
    "json_schema",
    "load_scenario",
    "parse_override",
    "prepare",
    "run_name",
    "scenario_dir",
    "scenario_from_dict",
    "shielded",
    "shipped_scenarios",
    "write_summary",
    "write_whole",
]
