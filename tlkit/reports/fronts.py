"""Pareto charts with their uncertainty: which rows are on the front, and in what share of the resampled tests."""

from collections.abc import Iterable

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    Chart,
    described,
    headline,
    panels_beside,
    plain_numbers,
)
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import label_ends

SURE, LIKELY, SELDOM = 0.95, 0.5, 0.05
# From which share of the draws on a row has which marker: form, colour and size.
CLASSES = {
    f"{SURE:.0%} or more": (SURE, "o", COLOURS[0], 70),
    f"{LIKELY:.0%} to {SURE:.0%}": (LIKELY, "D", COLOURS[1], 50),
    f"{SELDOM:.0%} to {LIKELY:.0%}": (SELDOM, "^", COLOURS[4], 50),
    "less": (-np.inf, "x", FAINT, 22),
}


@described
def pareto_chart(fronts: dict[str, pd.DataFrame], units: dict[str, str]) -> Chart:
    """Perplexity against each cost: how often no other strategy is as good and cheaper, had chance been another.

    Args:
        fronts: for each cost the table of `perplexity_front`, with the cost's column of the same name.
        units: by cost, what is written at its axis.
    """
    rows = -(-len(fronts) // 2)
    figure, panels = panels_beside(len(fronts), rows=rows, height=3.4 * rows + 0.9, sharey=True)
    often = {
        cost: table[table.share >= LIKELY] if table.share.notna().any() else table[table.front]
        for cost, table in fronts.items()
    }
    for axes, (cost, table) in zip(panels, fronts.items(), strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
        draw_front(axes, table, cost, "perplexity")
        if table[cost].nunique() == 1:  # all alike: without limits of its own, the scale would span two decades
            axes.set_xlim(table[cost].max() / 1.5, table[cost].max() * 1.5)
        plain_numbers(axes.yaxis, table.perplexity.min(), table.perplexity.max())
        if table[cost].max() < 30 * table[cost].min():
            plain_numbers(axes.xaxis, table[cost].min(), table[cost].max())
        else:
            axes.xaxis.set_major_formatter(lambda value, _: number(value))
            axes.xaxis.set_minor_formatter("")
        axes.set_xlabel(units[cost])
    for axes in panels[::2]:
        axes.set_ylabel("perplexity (lower is better)")
    name_shares(
        figure, panels[0], f"share of the draws in which a strategy is on the front (named: from {LIKELY:.0%} on)"
    )
    always = sorted(set.intersection(*(set(table.strategy) for table in often.values())))
    told = f"{listed(always)} {'is' if len(always) == 1 else 'are'}" if always else "none is"
    counted = f"{len(next(iter(fronts.values())))} strategies"
    headline(figure, f"Of {counted}, {told} on the front of every cost in at least half of the draws")
    for axes, (cost, table) in zip(panels, often.items(), strict=True):
        # Rounded down, so that 95% stands only beside what counts as 95% or more.
        shares = [f" {int(100 * share)}%" if pd.notna(share) else "" for share in table.share]
        name_rows(axes, table.strategy + shares, table, cost, "perplexity")
    return figure


def draw_front(axes: Axes, table: pd.DataFrame, cost: str, value: str) -> None:
    """The front as a dashed line of steps, and a marker for each row, by its share of the draws."""
    front = table[table.front].sort_values(cost)
    steps = np.repeat(front[cost], 2)[1:], np.repeat(front[value], 2)[:-1]
    axes.plot(*steps, label="front", color=FAINT, linewidth=0.8, linestyle="--", zorder=1)
    share, below = table.share.fillna(-np.inf), np.inf
    for name, (least, form, shade, size) in CLASSES.items():
        rows = table[(share >= least) & (share < below)]
        axes.scatter(rows[cost], rows[value], marker=form, color=shade, s=size, label=name, zorder=3)
        below = least


def name_rows(axes: Axes, names: Iterable[str], rows: pd.DataFrame, cost: str, value: str) -> None:
    """Write the names of some rows at the right, in the colours of their markers."""
    names = list(names)
    points = zip(rows[cost], rows[value], strict=True)
    shades = map(_shade, rows.share)
    label_ends(axes, dict(zip(names, points, strict=True)), dict(zip(names, shades, strict=True)))


def _shade(share: float) -> str:
    return next((shade for least, _, shade, _ in CLASSES.values() if share >= least), FAINT)


def name_shares(figure: Chart, axes: Axes, told: str) -> None:
    """Explain the markers of shares in a legend below the panels."""
    small = {"fontsize": "small", "title_fontsize": "small"}
    figure.legend(*axes.get_legend_handles_labels(), title=told, loc="outside lower center", ncols=5, **small)
