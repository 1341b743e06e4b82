"""Names written beside what they name: at the ends of lines, at the points of a path, beside the rows of a chart."""

from collections.abc import Sequence

from matplotlib.axes import Axes

from tlkit.reports.figure import FAINT, dark, settle


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


def label_path(axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], colour: str) -> None:
    """Write a name at the upper right of each point, the first, the last and then the others as far as there is room.

    Args:
        axes: where the points are, with their final limits.
        points: of a path, in its order.
        names: one for each point.
        colour: of the names.
    """
    settle(axes.figure)
    taken = [text.get_window_extent() for text in axes.texts]
    style = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": "small", "color": dark(colour)}
    for place in dict.fromkeys([0, len(points) - 1, *range(len(points))]):
        text = axes.annotate(names[place], points[place], **style)
        text.set_in_layout(False)
        here = text.get_window_extent()
        if any(here.overlaps(other) for other in taken):
            text.remove()
        else:
            taken.append(here)


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
