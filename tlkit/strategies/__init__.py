"""What of a model is trained."""

from tlkit.strategies.apply import StrategyReport, apply_strategy, component_of, describe
from tlkit.strategies.registry import (
    FAMILIES,
    STRATEGIES,
    check_strategy,
    dtype_of_weights,
    load_plugin,
    sha256_of_own,
    strategies_named,
    strategy,
)
