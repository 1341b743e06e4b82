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
    new_figure,
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
    shown = table.assign(percent=100 * table.accuracy)[table.accuracy >= least]
    if shown.empty:
        raise ValueError(f"least={least:g}: expected one that leaves some of the {len(table)} rows")
    figure, axes = new_figure(5.8)
    if log:
        axes.set_xscale("log")
    _draw_front(axes, shown, cost, "percent")
    if log:
        plain_numbers(axes.xaxis, shown[cost].min(), shown[cost].max())
    axes.set_xlabel(f"{unit} (lower is better)")
    spared = f"; from {100 * least:.0f}% on" if (table.accuracy < least).any() else ""
    axes.set_ylabel(f"accuracy (%, higher is better{spared})")
    _legend(
        figure,
        axes,
        f"share of the draws in which a row is on the front (named: from {LIKELY:.0%} on, and the most accurate row)",
    )
    named = shown[(shown.share >= LIKELY) | (shown.accuracy == shown.accuracy.max())]
    names = [f"{name} {100 * share:.0f}%" for name, share in zip(named.name, named.share, strict=True)]
    _label(axes, names, named, cost, "percent")
    front = shown[shown.front]
    held, could = int((front.share >= SURE).sum()), int(((shown.share >= SELDOM) & ~shown.front).sum())
    headline(
        figure,
        f"Of the {len(shown)} rows{' shown' if spared else ''}, {len(front)} are on the front, {held} of them in "
        f"{SURE:.0%} or more of the draws; {could} others reach it in {SELDOM:.0%} or more",
    )
    return figure


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
        _draw_front(axes, table, cost, "perplexity")
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
    _legend(figure, panels[0], f"share of the draws in which a strategy is on the front (named: from {LIKELY:.0%} on)")
    always = sorted(set.intersection(*(set(table.strategy) for table in often.values())))
    told = f"{listed(always)} {'is' if len(always) == 1 else 'are'}" if always else "none is"
    counted = f"{len(next(iter(fronts.values())))} strategies"
    headline(figure, f"Of {counted}, {told} on the front of every cost in at least half of the draws")
    for axes, (cost, table) in zip(panels, often.items(), strict=True):
        # Rounded down, so that 95% stands only beside what counts as 95% or more.
        shares = [f" {int(100 * share)}%" if pd.notna(share) else "" for share in table.share]
        _label(axes, table.strategy + shares, table, cost, "perplexity")
    return figure


def _draw_front(axes: Axes, table: pd.DataFrame, cost: str, value: str) -> None:
    """The front as a dashed line of steps, and a marker for each row, by its share of the draws."""
    front = table[table.front].sort_values(cost)
    steps = np.repeat(front[cost], 2)[1:], np.repeat(front[value], 2)[:-1]
    axes.plot(*steps, label="front", color=FAINT, linewidth=0.8, linestyle="--", zorder=1)
    share, below = table.share.fillna(-np.inf), np.inf
    for name, (least, form, shade, size) in CLASSES.items():
        rows = table[(share >= least) & (share < below)]
        axes.scatter(rows[cost], rows[value], marker=form, color=shade, s=size, label=name, zorder=3)
        below = least


def _label(axes: Axes, names: Iterable[str], rows: pd.DataFrame, cost: str, value: str) -> None:
    """Write the names of some rows at the right, in the colours of their markers."""
    names = list(names)
    points = zip(rows[cost], rows[value], strict=True)
    shades = map(_shade, rows.share)
    label_ends(axes, dict(zip(names, points, strict=True)), dict(zip(names, shades, strict=True)))


def _shade(share: float) -> str:
    return next((shade for least, _, shade, _ in CLASSES.values() if share >= least), FAINT)


def _legend(figure: Chart, axes: Axes, told: str) -> None:
    small = {"fontsize": "small", "title_fontsize": "small"}
    figure.legend(*axes.get_legend_handles_labels(), title=told, loc="outside lower center", ncols=5, **small)
