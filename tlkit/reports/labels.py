"""Points with their intervals, and names beside what they name: ends of lines, points of a path, rows of a chart."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tlkit.names import ZERO_SHOT
from tlkit.reports.figure import FAINT, INK, Chart, dark, settle, styles


def label_ends(axes: Axes, ends: dict[str, tuple[float, float]], colours: dict[str, str]) -> None:
    """Write names at the right of the axes, each as near to its point as the others allow, with a line to the point.

    Args:
        axes: where the points are, with their final limits.
        ends: by name the point, such as the last one of a curve.
        colours: by name that of its line.
    """
    settle(axes.figure)  # only then it is known how tall a line of text is beside the axes
    place_of = axes.transData + axes.transAxes.inverted()
    wanted = {name: float(place_of.transform(end)[1]) for name, end in ends.items()}
    style = {"transform": axes.transAxes, "fontsize": "small", "va": "center"}
    texts = {name: axes.text(1.025, wanted[name], name, color=dark(colours[name]), **style) for name in ends}
    gap = 1.1 * max((text.get_window_extent().height for text in texts.values()), default=0) / axes.bbox.height
    order = sorted(wanted, key=wanted.get)
    for name, place in zip(order, spread([wanted[name] for name in order], gap), strict=True):
        texts[name].set_y(place)
        line = {"arrowstyle": "-", "color": colours[name], "linewidth": 0.8, "linestyle": ":", "shrinkA": 0}
        there = {"xytext": (1.02, place), "textcoords": "axes fraction", "annotation_clip": False}
        axes.annotate("", ends[name], arrowprops=line, zorder=1.5, **there).set_in_layout(False)


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Move places apart as little as possible until neighbours are `gap` apart.

    Args:
        places: in ascending order.
        gap: the least distance of two.

    Returns:
        The new places, in the same order; neighbours that had to move keep the middle that they had together.
    """
    groups: list[list[float]] = []  # of each: the middle, and how many places stand there
    for place in places:
        groups.append([place, 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (high, above), (low, below) = groups.pop(), groups.pop()
            groups.append([(low * below + high * above) / (below + above), below + above])
    return [middle + gap * (number - (count - 1) / 2) for middle, count in groups for number in range(int(count))]


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
