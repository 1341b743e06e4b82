"""What is trainable: the strategies by name, what each really selects, and how a reader adds one."""

from tlkit.strategies import freezing, in_time, peft_methods  # their strategies are known from here on
from tlkit.strategies.apply import apply_strategy
from tlkit.strategies.plugins import load_plugin, sha256_of_own
from tlkit.strategies.registry import (
    FAMILIES,
    OWN,
    STRATEGIES,
    check_strategy,
    dtype_of_weights,
    strategies_named,
    strategy,
)
from tlkit.strategies.report import StrategyReport, component_of, describe
