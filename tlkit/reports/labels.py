"""Names written beside what they name, instead of in a legend, so that no two of them lie over each other."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from tlkit.reports.figure import FAINT, INK, dark

NEAR, FAR = (9, 15), (26, 40, 58, 80)  # points from the point to its label; from far away a line leads there
# Horizontally and vertically: right, left, above, below, then the corners.
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
RADIUS, AIR = 7, 2  # of a marker, and around a label, in points


def label_points(
    axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str] | str = INK
) -> list[Text]:
    """Write a name beside each point, where it covers no other name, no other point and as little as possible else.

    Call it when all else is drawn and the limits of the axes are final.

    Args:
        axes: where the points are.
        points: in the units of the axes.
        names: one for each point.
        colours: one for each point, or one for all.

    Returns:
        The labels, in the order of the points.
    """
    if not len(points):
        return []
    colours = [colours] * len(points) if isinstance(colours, str) else colours
    axes.figure.draw_without_rendering()  # only then it is known where in the picture a point is
    unit = axes.figure.dpi / 72
    at = axes.transData.transform(np.asarray(points, dtype=float).reshape(-1, 2))
    taken = [Bbox.from_extents(*(spot - RADIUS * unit), *(spot + RADIUS * unit)) for spot in at]
    taken += [text.get_window_extent() for text in axes.texts if text.get_text()]
    drawn = _places_on_lines(axes)
    labels = []
    for spot, point, name, colour in zip(at, points, names, colours, strict=True):
        label = axes.annotate(
            name, point, xytext=(0, 0), textcoords="offset points", fontsize="small", color=colour, zorder=5
        )
        size = np.array(label.get_window_extent().size)
        best = None
        for distance, side in product((*NEAR, *FAR), SIDES):
            box = _box(spot, size, np.array(side), distance * unit)
            outside = not axes.bbox.x0 <= box.x0 <= box.x1 <= axes.bbox.x1
            outside |= not axes.bbox.y0 <= box.y0 <= box.y1 <= axes.bbox.y1
            covered = sum(box.padded(AIR * unit).overlaps(other) for other in taken) + outside
            crossed = int(box.padded(-1).count_contains(drawn)) if len(drawn) else 0
            cost = (covered, crossed > 0 and distance in NEAR, distance, crossed)
            if best is None or cost < best[0]:
                best = cost, distance, side, box
        _, distance, side, box = best
        taken.append(box)
        label.set_position((distance * side[0], distance * side[1]))
        label.set_horizontalalignment({1: "left", 0: "center", -1: "right"}[side[0]])
        label.set_verticalalignment({1: "bottom", 0: "center", -1: "top"}[side[1]])
        label.set_in_layout(False)
        if distance in FAR:
            arrow = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 4}
            there = {"xytext": (distance * side[0], distance * side[1]), "textcoords": "offset points"}
            axes.annotate("", point, arrowprops=arrow, **there).set_in_layout(False)
        labels.append(label)
    return labels


def label_ends(axes: Axes, ends: dict[str, tuple[float, float]], colours: dict[str, str]) -> None:
    """Write the names of lines at the right of the axes, each as near to its line's end as the others allow.

    A line that ends well before the right of the axes has its name at its end.

    Args:
        axes: where the lines are, with their final limits.
        ends: by name the last point of a line.
        colours: by name that of its line.
    """
    axes.figure.draw_without_rendering()
    along = {name: axes.transAxes.inverted().transform(axes.transData.transform(end)) for name, end in ends.items()}
    early = [name for name in ends if along[name][0] < 0.9]
    texts = {
        name: axes.text(
            1.025, 0.5, name, transform=axes.transAxes, color=dark(colours[name]), fontsize="small", va="center"
        )
        for name in ends
        if name not in early
    }
    label_points(axes, [ends[name] for name in early], early, [dark(colours[name]) for name in early])
    axes.figure.draw_without_rendering()
    height = max((text.get_window_extent().height for text in texts.values()), default=0) * 1.1 / axes.bbox.height
    wanted = {name: along[name][1] for name in texts}
    order = sorted(wanted, key=wanted.get)
    for name, place in zip(order, spread([wanted[name] for name in order], height), strict=True):
        texts[name].set_y(place)
        line = {"arrowstyle": "-", "color": colours[name], "linewidth": 0.8, "shrinkA": 0, "shrinkB": 2}
        leader = axes.annotate(
            "", ends[name], xytext=(1.02, place), textcoords="axes fraction", arrowprops=line, annotation_clip=False
        )
        leader.set_in_layout(False)


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


def _box(spot: np.ndarray, size: np.ndarray, side: np.ndarray, distance: float) -> Bbox:
    """Where a label lies that stands at `side` of a point."""
    near = spot + side * distance + (side - 1) * size / 2
    return Bbox.from_extents(*near, *(near + size))


def _places_on_lines(axes: Axes) -> np.ndarray:
    """Places along what is drawn as lines, close together."""
    found = []
    paths = [line.get_transform().transform(line.get_xydata()) for line in axes.lines]
    for bars in axes.collections:
        if isinstance(bars, LineCollection):  # intervals
            paths += [bars.get_transform().transform(segment) for segment in bars.get_segments()]
    for path in paths:
        path = path[np.isfinite(path).all(axis=1)]
        for start, end in zip(path, path[1:], strict=False):
            steps = max(2, int(np.hypot(*(end - start)) / 4))
            found.append(np.linspace(start, end, steps))
    return np.concatenate(found) if found else np.empty((0, 2))
