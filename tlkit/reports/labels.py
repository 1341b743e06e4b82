"""Points with their intervals, and names beside what they name."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import ZERO_SHOT
from tlkit.reports.figure import FAINT, INK, Chart, styles


def beside_rows(axes: Axes, rows: Sequence[float], texts: Sequence[str], heading: str = "") -> None:
    """Write the figures of a chart with rows in a column at its right.

    Args:
        axes: of a chart that has a row at each of `rows` on the vertical axis.
        rows: their places.
        texts: one for each.
        heading: over the column.
    """
    where = {"transform": axes.get_yaxis_transform(), "fontsize": "small", "va": "center"}
    for row, text in zip(rows, texts, strict=True):
        axes.text(1.02, row, text, **where)
    if heading:
        above = {"xytext": (0, 4), "textcoords": "offset points", "fontsize": "small", "color": FAINT, "va": "bottom"}
        axes.annotate(heading, (1.02, 1), xycoords="axes fraction", **above)


def over_seeds(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """A measure with the ends of its interval over seeds.

    Args:
        table: a row for each strategy.
        column: of the measure.

    Returns:
        A table with columns value, low and high, NaN where there is no interval.
    """
    columns = {"value": column, "low": f"{column}_seeds_low", "high": f"{column}_seeds_high"}
    return pd.DataFrame({end: table.get(name, np.nan) for end, name in columns.items()}, index=table.index)


def draw_points(
    axes: Axes, strategies: Sequence[str], across: pd.DataFrame, upwards: pd.DataFrame, names: Sequence[str]
) -> None:
    """Draw a marker for each strategy, with its intervals where there are any; the untouched model is black.

    Args:
        axes: where to draw.
        strategies: in the order of the rows.
        across: what lies on the horizontal axis, with columns value, low and high.
        upwards: what lies on the vertical axis.
        names: as the legend should write them.
    """
    drawn = styles(strategies)
    for strategy, name, x, y in zip(strategies, names, across.itertuples(), upwards.itertuples(), strict=True):
        shade, form = drawn[strategy]
        errors = {
            axis: [[point.value - point.low], [point.high - point.value]]
            for axis, point in (("xerr", x), ("yerr", y))
            if point.low <= point.value <= point.high
        }
        style = {"color": INK if strategy == ZERO_SHOT else shade, "marker": form, "markersize": 9, "linestyle": "none"}
        axes.errorbar(x.value, y.value, label=name, capsize=3, elinewidth=1, **errors, **style)


def name_points(figure: Chart, axes: Axes) -> None:
    """Name the markers of a chart in a column at its right.

    Args:
        figure: the chart.
        axes: one of its panels, in which every strategy is drawn.
    """
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize="small", frameon=False)


def best_corner(axes: Axes) -> None:
    """Say at the bottom left of a chart of what is forgotten against what is gained that this corner is the best.

    Args:
        axes: of the chart.
    """
    where = {"xytext": (6, 6), "textcoords": "offset points", "fontsize": "small", "style": "italic", "color": FAINT}
    axes.annotate("best corner: gains much, forgets little", (0, 0), xycoords="axes fraction", **where)
