"""What is trainable: the strategies by name, what each really selects, and how a reader adds one."""

from tlkit.strategies.apply import apply_strategy
from tlkit.strategies.registry import (
    FAMILIES,
    OWN,
    STRATEGIES,
    check_strategy,
    dtype_of_weights,
    load_plugin,
    sha256_of_own,
    strategies_named,
    strategy,
)
from tlkit.strategies.report import StrategyReport, component_of, describe
