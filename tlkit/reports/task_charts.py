"""Charts of what a task measures beside perplexity: classes that were found, answers that stop and have their form."""

import pandas as pd

from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.reports.figure import COLOURS, Chart, described, headline, height_for, mark, marker, new_figure
from tlkit.reports.findings import listed

# Columns of answers, in shares, and how a chart calls them.
ANSWER_SHARES = {
    "stopped": "stop by themselves",
    "empty": "are empty",
    "in_form": "have the form that was asked for",
    "one_word_right": "of one word: are right",
    "refused_wrongly": "refuse a question about Rust",
}


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


@described
def answers_chart(table: pd.DataFrame) -> Chart:
    """Of the answers that each strategy's model writes, the shares that stop by themselves, have their form, are right.

    Args:
        table: a row for each strategy, with column strategy and those of `ANSWER_SHARES`, from 0 to 1.
    """
    table = table[(table.strategy != CONTROL) & table.stopped.notna()].iloc[::-1].reset_index(drop=True)
    figure, axes = new_figure(height_for(1.4 * len(table)))
    for order, (column, words) in enumerate(ANSWER_SHARES.items()):
        places = [place + 0.3 - 0.15 * order for place in range(len(table))]
        style = {"color": COLOURS[order], "marker": marker(order), "linestyle": "none"}
        axes.plot(100 * table[column], places, label=words, **style)
    axes.set_xlim(-4, 104)
    axes.set_yticks(range(len(table)), table.strategy)
    axes.set_ylim(-0.6, len(table) - 0.4)
    axes.set_xlabel("of the answers to test questions (%)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, frameon=False, fontsize="small")
    before = table[table.strategy == ZERO_SHOT].stopped
    after = table[table.strategy != ZERO_SHOT].stopped
    if len(before) and len(after):
        said = f"{before.iloc[0]:.0%} of the answers stopped by themselves before training, {_span(after)} after it"
    else:
        said = f"{_span(table.stopped)} of the answers stop by themselves"
    headline(figure, said)
    return figure


def _span(shares: pd.Series) -> str:
    low, high = f"{shares.min():.0%}", f"{shares.max():.0%}"
    return low if low == high else f"{low} to {high}"


def task_chart_of(comparison) -> Chart | None:
    """The chart of a comparison's own task; None where it measures nothing beside perplexity.

    Args:
        comparison: what `compare` returned.
    """
    table = comparison.table
    if "balanced_accuracy" in table:
        return class_accuracy_chart(table, comparison.provenance.get("classes"))
    return answers_chart(table) if "stopped" in table else None
