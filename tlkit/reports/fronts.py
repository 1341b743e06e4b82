"""A Pareto chart with its uncertainty: which rows are on the front, and in what share of the resampled tests."""

import numpy as np
import pandas as pd

from tlkit.reports.figure import COLOURS, FAINT, Chart, dark, described, headline, new_figure, plain_numbers
from tlkit.reports.labels import label_points

SURE, LIKELY = 0.95, 0.5


@described
def front_chart(table: pd.DataFrame, cost: str, unit: str, *, log: bool = False, least: float = 0.0) -> Chart:
    """Accuracy against a cost: each row's share of the resampled tests in which no other row beats it on both.

    Args:
        table: a row for each method, with columns name, accuracy (0 to 1), `cost`, and, of `front_shares`, front and
            share.
        cost: the column of the cost, lower is better.
        unit: what is written at the axis of the cost.
        log: whether its scale is logarithmic.
        least: accuracies below it are left out of the picture.

    Raises:
        ValueError: where no row is left.
    """
    shown = table[table.accuracy >= least].sort_values(cost)
    if shown.empty:
        raise ValueError(f"least={least:g}: expected one that leaves some of the {len(table)} rows")
    figure, axes = new_figure(5.8)
    front = shown[shown.front]
    dashed = {"color": FAINT, "linewidth": 0.8, "linestyle": "--", "zorder": 1}
    steps = np.repeat(front[cost], 2)[1:], np.repeat(100 * front.accuracy, 2)[:-1]  # as a line, which labels avoid
    axes.plot(*steps, label="published front", **dashed)
    sure, likely = shown.share >= SURE, (shown.share >= LIKELY) & (shown.share < SURE)
    seldom = (shown.share >= 0.05) & ~sure & ~likely
    kinds = {
        f"{SURE:.0%} or more": (sure, "o", COLOURS[0], 70),
        f"{LIKELY:.0%} to {SURE:.0%}": (likely, "D", COLOURS[1], 50),
        f"5% to {LIKELY:.0%}": (seldom, "^", COLOURS[4], 50),
        "less": (shown.share < 0.05, "x", FAINT, 22),
    }
    for name, (rows, form, shade, size) in kinds.items():
        part = shown[rows]
        axes.scatter(part[cost], 100 * part.accuracy, marker=form, color=shade, s=size, label=name, zorder=3)
    if log:
        axes.set_xscale("log")
        plain_numbers(axes.xaxis, shown[cost].min(), shown[cost].max())
    axes.margins(x=0.16, y=0.12)
    axes.set_xlabel(f"{unit} (lower is better)")
    spared = f"; from {100 * least:.0f}% on" if (table.accuracy < least).any() else ""
    axes.set_ylabel(f"accuracy (%, higher is better{spared})")
    told = (
        f"share of the draws in which a row is on the front\n(named: from {LIKELY:.0%} on, and the most accurate row)"
    )
    legend = figure.legend(title=told, fontsize="small", title_fontsize="small", loc="outside lower center", ncols=5)
    legend.get_title().set_multialignment("center")
    named = shown[(shown.share >= LIKELY) | (shown.accuracy == shown.accuracy.max())]
    names = [f"{row.name} {100 * row.share:.0f}%" for row in named[["name", "share"]].itertuples(index=False)]
    shades = [
        dark(COLOURS[0] if share >= SURE else COLOURS[1] if share >= LIKELY else COLOURS[4]) for share in named.share
    ]
    label_points(axes, list(zip(named[cost], 100 * named.accuracy, strict=True)), names, shades)
    held, could = int((front.share >= SURE).sum()), int(((shown.share >= 0.05) & ~shown.front).sum())
    headline(
        figure,
        f"Of the {len(shown)} rows{' shown' if spared else ''}, {len(front)} are on the front, {held} of them in "
        f"{SURE:.0%} or more of the draws; {could} others reach it in 5% or more",
    )
    return figure
