"""The charts that a comparison is exported with."""

from collections.abc import Iterable

import pandas as pd

from tlkit.evidence.fronts import perplexity_front
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.cost_charts import cost_chart, parameters_chart
from tlkit.reports.figure import Chart
from tlkit.reports.forgetting_charts import forgetting_chart
from tlkit.reports.fronts import pareto_chart
from tlkit.reports.score_charts import (
    accuracy_chart,
    class_accuracy_chart,
    pairs_chart,
    perplexity_chart,
)

# What a comparison measures beside perplexity, and how its axis is called.
COSTS = {
    "trainable_values": "values trained",
    "peak_memory_mb": "peak memory of tensors (MB)",
    "seconds": "seconds of training",
    "file_mb": "file of weights (MB)",
    "general": "perplexity on general text (lower: forgot less)",
}


def pareto_of(documents: pd.DataFrame, runs: pd.DataFrame, costs: Iterable[str] = tuple(COSTS)) -> Chart | None:
    """Draw `pareto_chart` of the runs of a comparison; None where there are fewer than two strategies to compare.

    Args:
        documents: of a comparison.
        runs: of a comparison.
        costs: some of `COSTS`.
    """
    runs = runs[~runs.strategy.isin([ZERO_SHOT, CONTROL])].assign(file_mb=runs.file_bytes / 1e6)
    if runs.strategy.nunique() < 2:
        return None
    fronts = {cost: perplexity_front(documents, runs, cost) for cost in costs if (runs[cost] > 0).all()}
    return pareto_chart(fronts, COSTS)


def _pairs_of(comparison) -> Chart | None:
    """None where there is no pair whose spread is known."""
    pairs = comparison.pairs
    return pairs_chart(pairs) if len(pairs) and pairs.low.notna().all() else None


def _class_accuracy_of(comparison) -> Chart | None:
    """None where no classes were to be found."""
    classifies = "balanced_accuracy" in comparison.table
    return class_accuracy_chart(comparison.table, comparison.provenance["classes"]) if classifies else None


# Each draws a comparison, or returns None where it has nothing to draw.
CHARTS = {
    "perplexity": lambda comparison: perplexity_chart(comparison.table),
    "parameters": lambda comparison: parameters_chart(comparison.table),
    "cost": lambda comparison: cost_chart(comparison.table),
    "forgetting": lambda found: forgetting_chart(found.table) if found.table.general.notna().any() else None,
    "class_accuracy": _class_accuracy_of,
    "pairs": _pairs_of,
    "accuracy": lambda found: accuracy_chart(found.table) if len(found.answers) else None,
    "pareto": lambda comparison: pareto_of(comparison.documents, comparison.runs),
}
