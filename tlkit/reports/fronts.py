"""Pareto charts with their uncertainty: which rows are on the front, and in what share of the resampled tests."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tlkit.reports.figure import (
    COLOURS,
    FAINT,
    Chart,
    dark,
    described,
    fix_layout,
    headline,
    new_figure,
    panels_beside,
    plain_numbers,
)
from tlkit.reports.findings import listed, number
from tlkit.reports.labels import label_points

SURE, LIKELY = 0.95, 0.5
DASHED = {"color": FAINT, "linewidth": 0.8, "linestyle": "--", "zorder": 1}


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
    steps = np.repeat(front[cost], 2)[1:], np.repeat(100 * front.accuracy, 2)[:-1]
    axes.plot(*steps, label="published front", **DASHED)
    _mark_by_share(axes, shown[cost], 100 * shown.accuracy, shown.share)
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
    _legend(figure, axes, told)
    named = shown[(shown.share >= LIKELY) | (shown.accuracy == shown.accuracy.max())]
    names = [f"{row.name} {100 * row.share:.0f}%" for row in named[["name", "share"]].itertuples(index=False)]
    shades = [_shade(share) for share in named.share]
    label_points(axes, list(zip(named[cost], 100 * named.accuracy, strict=True)), names, shades)
    held, could = int((front.share >= SURE).sum()), int(((shown.share >= 0.05) & ~shown.front).sum())
    headline(
        figure,
        f"Of the {len(shown)} rows{' shown' if spared else ''}, {len(front)} are on the front, {held} of them in "
        f"{SURE:.0%} or more of the draws; {could} others reach it in 5% or more",
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
    always: set[str] | None = None
    labels = []
    for axes, (cost, table) in zip(panels, fronts.items(), strict=True):
        table = table.sort_values(cost)
        front = table[table.front]
        axes.plot(np.repeat(front[cost], 2)[1:], np.repeat(front.perplexity, 2)[:-1], label="front", **DASHED)
        _mark_by_share(axes, table[cost], table.perplexity, table.share)
        axes.set_xscale("log")
        axes.set_yscale("log")
        if table[cost].nunique() == 1:  # all alike: without limits of its own, the scale would span two decades
            axes.set_xlim(table[cost].max() / 1.5, table[cost].max() * 1.5)
        plain_numbers(axes.yaxis, table.perplexity.min(), table.perplexity.max())
        if table[cost].max() < 30 * table[cost].min():
            plain_numbers(axes.xaxis, table[cost].min(), table[cost].max())
        else:
            axes.xaxis.set_major_formatter(lambda value, _: number(value))
            axes.xaxis.set_minor_formatter("")
        axes.grid(alpha=0.3)
        axes.margins(x=0.18, y=0.14)
        axes.set_xlabel(units[cost])
        often = table[table.share >= LIKELY] if table.share.notna().any() else front
        always = set(often.strategy) if always is None else always & set(often.strategy)
        # Rounded down, so that 95% stands only beside what counts as 95% or more.
        shares = [f" {int(100 * share)}%" if pd.notna(share) else "" for share in often.share]
        names = [f"{name}{share}" for name, share in zip(often.strategy, shares, strict=True)]
        points = list(zip(often[cost], often.perplexity, strict=True))
        labels.append((axes, points, names, [_shade(share) for share in often.share]))
    for axes in panels[::2]:
        axes.set_ylabel("perplexity (lower is better)")
    _legend(figure, panels[0], f"share of the draws in which a strategy is on the front (named: from {LIKELY:.0%} on)")
    counted = f"{len(next(iter(fronts.values())))} strategies"
    told = f"{listed(sorted(always))} {'is' if len(always) == 1 else 'are'}" if always else "none is"
    headline(figure, f"Of {counted}, {told} on the front of every cost in at least half of the draws")
    fix_layout(figure)  # a label's place depends on all that is drawn, in other panels, too
    for of_a_panel in labels:
        label_points(*of_a_panel)
    return figure


def _mark_by_share(axes: Axes, x: pd.Series, y: pd.Series, shares: pd.Series) -> None:
    """A marker for each row; its form and colour say in what share of the draws the row is on the front."""
    sure, likely = shares >= SURE, (shares >= LIKELY) & (shares < SURE)
    seldom = (shares >= 0.05) & ~sure & ~likely
    kinds = {
        f"{SURE:.0%} or more": (sure, "o", COLOURS[0], 70),
        f"{LIKELY:.0%} to {SURE:.0%}": (likely, "D", COLOURS[1], 50),
        f"5% to {LIKELY:.0%}": (seldom, "^", COLOURS[4], 50),
        "less": (~(sure | likely | seldom), "x", FAINT, 22),
    }
    for name, (rows, form, shade, size) in kinds.items():
        axes.scatter(x[rows], y[rows], marker=form, color=shade, s=size, label=name, zorder=3)


def _shade(share: float) -> str:
    """The colour of a label; as dark as writing has to be."""
    return dark(COLOURS[0] if share >= SURE else COLOURS[1] if share >= LIKELY else COLOURS[4])


def _legend(figure: Chart, axes: Axes, told: str) -> None:
    handles, labels = axes.get_legend_handles_labels()
    small = {"fontsize": "small", "title_fontsize": "small"}
    legend = figure.legend(handles, labels, title=told, loc="outside lower center", ncols=5, **small)
    legend.get_title().set_multialignment("center")
