"""What a strategy costs in a comparison: values trained, seconds and memory."""

import math

import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.reports.figure import (
    COLOURS,
    INK,
    UNTOUCHED,
    Chart,
    described,
    headline,
    height_for,
    new_figure,
    panels_beside,
)
from tlkit.reports.findings import number
from tlkit.reports.labels import draw_points, name_points, over_seeds


@described
def parameters_chart(table: pd.DataFrame) -> Chart:
    """Trainable values (log scale) against perplexity, without the control.

    Args:
        table: a row for each strategy, with columns strategy, trainable_values, perplexity; and, where there are
            seeds, perplexity_seeds_low and perplexity_seeds_high.
    """
    before = table[table.strategy == ZERO_SHOT].perplexity
    table = table[(table.trainable_values > 0) & (table.strategy != CONTROL)].dropna(subset="perplexity")
    figure, axes = new_figure()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: number(value))
    axes.margins(0.12)
    for value in before:
        axes.axhline(value, color=INK, linestyle="--", linewidth=1.2, label=f"{UNTOUCHED} {number(value)}")
    measures = over_seeds(table, "trainable_values"), over_seeds(table, "perplexity")
    draw_points(axes, table.strategy, *measures, table.strategy)
    name_points(figure, axes)
    axes.set_xlabel("values trained (log scale)")
    axes.set_ylabel("perplexity on held-out text (lower is better)")
    most, fewest = (table.loc[pick] for pick in (table.trainable_values.idxmax(), table.trainable_values.idxmin()))
    share = f"{100 * fewest.trainable_values / most.trainable_values:.2g}% of the values that {most.strategy} trains"
    if len(table) < 2:
        headline(figure, f"{most.strategy} trains {number(most.trainable_values)} values")
    elif len(before) and before.iloc[0] > most.perplexity:
        kept = (before.iloc[0] - fewest.perplexity) / (before.iloc[0] - most.perplexity)
        headline(figure, f"{fewest.strategy} trains {share}, and brings {100 * kept:.0f}% of its gain")
    else:
        headline(figure, f"{fewest.strategy} trains {share}")
    return figure


@described
def cost_chart(table: pd.DataFrame) -> Chart:
    """Seconds of training and peak memory of tensors, side by side.

    Args:
        table: a row for each strategy, with columns strategy, seconds, peak_memory_mb.
    """
    table = table[table.seconds > 0]
    figure, (left, right) = panels_beside(2, height=height_for(len(table)))
    unit, size = ("GB", 1e3) if table.peak_memory_mb.max() >= 1e4 else ("MB", 1)
    _bars(left, table.strategy, table.seconds, "s", COLOURS[5])
    left.set_xlabel("training time (s, on one machine)")
    _bars(right, table.strategy, table.peak_memory_mb / size, unit, COLOURS[4], hatch="//")
    right.set_xlabel(f"peak memory of tensors ({unit})")
    left.invert_yaxis()
    headline(figure, _cost_finding(table))
    return figure


def _cost_finding(table: pd.DataFrame) -> str:
    """Which strategy needs the least time and which the least memory, as a share of the one that needs most."""
    least_by_name: dict[str, list[str]] = {}
    for column, what in (("seconds", "time"), ("peak_memory_mb", "memory")):
        measured = table[table.strategy != CONTROL].dropna(subset=column).set_index("strategy")[column]
        if len(measured) > 1:
            least, most = measured.idxmin(), measured.idxmax()
            share = f"{100 * measured[least] / measured[most]:.0f}% of {most}'s"
            least_by_name.setdefault(least, []).append(f"the least {what} ({share})")
    if not least_by_name:
        return "Time and memory of a training"
    return ", ".join(f"{name} needs {' and '.join(what)}" for name, what in least_by_name.items())


def _bars(axes: Axes, names: pd.Series, sizes: pd.Series, unit: str, shade: str, **style) -> None:
    """Bars with their values at their ends."""
    axes.grid(alpha=0.3, axis="x")
    axes.set_axisbelow(True)
    axes.barh(names, sizes, color=shade, edgecolor=INK, **style)
    axes.set_xlim(0, 1.25 * sizes.max())
    for place, size in enumerate(sizes):
        if math.isfinite(size):
            beside = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": "small"}
            axes.annotate(f"{number(size)} {unit}", (size, place), **beside)
