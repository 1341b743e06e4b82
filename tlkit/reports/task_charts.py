"""Charts of what a task measures beside perplexity: classes that were found, answers that stop and have their form."""

import pandas as pd

from tlkit.reports.figure import COLOURS, Chart, described, headline, height_for, mark, new_figure
from tlkit.reports.findings import listed

# Columns of answers, in shares, and how a chart calls them.


@described
def class_accuracy_chart(table: pd.DataFrame, classes: int | None = None) -> Chart:
    """Balanced accuracy of each strategy with its 95% interval over texts; the dashed line is what guessing gives.

    Args:
        table: a row for each strategy, with columns strategy, balanced_accuracy, balanced_accuracy_low and
            balanced_accuracy_high, from 0 to 1.
        classes: how many there are; None draws no line.
    """
    table = table.dropna(subset="balanced_accuracy").iloc[::-1].reset_index(drop=True)
    figure, axes = new_figure(height_for(len(table)))
    values, low, high = (100 * table[f"balanced_accuracy{end}"] for end in ("", "_low", "_high"))
    errors = [(values - low).clip(lower=0), (high - values).clip(lower=0)]
    axes.errorbar(values, range(len(table)), xerr=errors, fmt="o", color=COLOURS[0], capsize=4)
    for place, value in enumerate(values):
        axes.text(1.02, place, f"{value:.0f}%", transform=axes.get_yaxis_transform(), fontsize="small", va="center")
    if classes:
        mark(axes, 100 / classes, "guessing")
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("balanced accuracy (%; lines: 95% interval over test texts)")
    ranked = table.sort_values("balanced_accuracy", ascending=False)
    best = ranked.iloc[0]
    behind = ranked[ranked.balanced_accuracy_high < best.balanced_accuracy_low].strategy
    said = f"{best.strategy} finds the class most often ({100 * best.balanced_accuracy:.0f}%)"
    said += (
        f"; clearly less often: {listed(behind, 'rows')}" if len(behind) else "; no interval lies wholly below its own"
    )
    headline(figure, said)
    return figure
