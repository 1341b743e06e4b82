"""What is trainable: the strategies by name, what each really selects, and how a reader adds one."""

from tlkit.strategies import freezing, in_time, peft_methods  # noqa: F401 - their strategies are known from here on
from tlkit.strategies.applying import apply_strategy
from tlkit.strategies.own import load_plugin, sha256_of_own
from tlkit.strategies.registry import (
    FAMILIES,
    OWN,
    STRATEGIES,
    check_strategy,
    strategies_named,
    strategy,
)
from tlkit.strategies.report import StrategyReport, component_of, describe

__all__ = [
    "FAMILIES",
    "OWN",
    "STRATEGIES",
    "StrategyReport",
    "apply_strategy",
    "check_strategy",
    "component_of",
    "describe",
    "load_plugin",
    "sha256_of_own",
    "strategies_named",
    "strategy",
]
