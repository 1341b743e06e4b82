"""What is trainable: the strategies by name, what each really selects, and how a reader adds one."""

from tlkit.strategies import freezing, in_time, peft_methods  # noqa: F401 - their strategies are known from here on
from tlkit.strategies.applying import apply_strategy
from tlkit.strategies.groups import ParameterGroup, as_in_phase, groups_of, in_phases, set_groups
from tlkit.strategies.own import load_plugin, sha256_of_own
from tlkit.strategies.parts import find_blocks, is_tied, trainable_parameters
from tlkit.strategies.registry import (
    CLASSIC,
    FAMILIES,
    OWN,
    STRATEGIES,
    check_strategy,
    strategies_named,
    strategy,
)
from tlkit.strategies.report import StrategyReport, component_of, describe

__all__ = [
    "CLASSIC",
    "FAMILIES",
    "OWN",
    "STRATEGIES",
    "ParameterGroup",
    "StrategyReport",
    "apply_strategy",
    "as_in_phase",
    "check_strategy",
    "component_of",
    "describe",
    "find_blocks",
    "groups_of",
    "in_phases",
    "is_tied",
    "load_plugin",
    "set_groups",
    "sha256_of_own",
    "strategies_named",
    "strategy",
    "trainable_parameters",
]
