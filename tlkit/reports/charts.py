"""The charts that a comparison is exported with."""

from tlkit.reports.cost_charts import cost_chart, parameters_chart
from tlkit.reports.figure import Chart
from tlkit.reports.forgetting_charts import forgetting_chart
from tlkit.reports.score_charts import (
    accuracy_chart,
    class_accuracy_chart,
    pairs_chart,
    perplexity_chart,
)


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
}
