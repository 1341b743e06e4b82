"""Names written beside what they name, instead of in a legend, so that no two of them lie over each other."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.text import Text

from tlkit.reports.figure import FAINT, INK, dark, settle

NEAR, FAR = (9, 15), (26, 40, 58, 80)  # points from the point to its label; from far away a line leads there
# Horizontally and vertically: right, left, above, below, the corners, and what lies between these.
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
SIDES += ((0.5, 1), (-0.5, 1), (0.5, -1), (-0.5, -1), (1, 0.5), (-1, 0.5), (1, -0.5), (-1, -0.5))
RADIUS, AIR, SPACE = 7, 2, 6  # of a marker, around a label, and between two in one line, in points
# How many points farther away a label would rather stand than do this.
COVERS, STRUCK, TANGLED, MISTAKEN, CROSSED, LED = 2000, 500, 120, 40, 45, 10
NOTHING = ("None", "none", " ", "", None)  # as matplotlib calls a line or a marker that is not drawn
ROUNDS = 4  # in which each label may make room for the others


def label_points(
    axes: Axes, points: Sequence[tuple[float, float]], names: Sequence[str], colours: Sequence[str] | str = INK
) -> list[Text]:
    """Write a name beside each point, where it covers no other name, no marker, no interval and little else.

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
    settle(axes.figure)  # only then it is known where in the picture a point is
    unit = axes.figure.dpi / 72
    at = axes.transData.transform(np.asarray(points, dtype=float).reshape(-1, 2))
    ground = _Ground(axes, at, unit)
    here = {"xytext": (0, 0), "textcoords": "offset points", "fontsize": "small", "ha": "center", "va": "center"}
    labels = [
        axes.annotate(name, point, color=colour, zorder=5, **here)
        for name, point, colour in zip(names, points, colours, strict=True)
    ]
    sizes = [np.array(label.get_window_extent().size) for label in labels]
    for label, point, spot, (box, far) in zip(labels, points, at, ground.places(sizes), strict=True):
        label.set_position(((box[:2] + box[2:]) / 2 - spot) / unit)
        label.set_in_layout(False)
        if far:
            there = {"xytext": (np.clip(spot, box[:2], box[2:]) - spot) / unit, "textcoords": "offset points"}
            line = {"arrowstyle": "-", "color": FAINT, "linewidth": 0.8, "linestyle": ":", "shrinkA": 1, "shrinkB": 4}
            axes.annotate("", point, arrowprops=line, zorder=1.5, **there).set_in_layout(False)  # below intervals
    return labels


class _Ground:
    """What labels must keep clear of, in pixels; a box is its left, lower, right and upper end."""

    def __init__(self, axes: Axes, at: np.ndarray, unit: float):
        self.at, self.unit, self.frame = at, unit, axes.bbox.extents
        self.marks = np.concatenate([_around(at, RADIUS * unit), _markers(axes, unit)])
        texts = [text.get_window_extent().extents for text in axes.texts if text.get_text()]
        self.texts = np.array(texts).reshape(-1, 4)
        self.intervals, self.lines = _places_on_lines(axes)

    def places(self, sizes: list[np.ndarray]) -> list[tuple[np.ndarray, bool]]:
        """Choose the box of each label, and whether it is so far from its point that a line must lead there."""
        chosen = {}
        for _ in range(ROUNDS):
            before = dict(chosen)
            for number, size in enumerate(sizes):
                others = [box for other, (box, _) in chosen.items() if other != number]
                leaders = [_leader(self.at[other], *chosen[other]) for other in chosen if other != number]
                chosen[number] = self._best(number, size, np.array(others).reshape(-1, 4), leaders)
            if before and all(np.array_equal(before[number][0], chosen[number][0]) for number in chosen):
                break
        return list(chosen.values())

    def _best(self, number: int, size: np.ndarray, others: np.ndarray, leaders: list) -> tuple[np.ndarray, bool]:
        """The cheapest place for one label, with the other labels where they are."""
        spot, unit = self.at[number], self.unit
        choices = list(product((*NEAR, *FAR), np.array(SIDES)))
        near = np.array([spot + side * distance * unit + (side - 1) * size / 2 for distance, side in choices])
        boxes, far = np.hstack([near, near + size]), np.array([distance in FAR for distance, _ in choices])
        words = np.concatenate([self.texts, others])
        covered = _overlap(_padded(boxes, AIR * unit), self.marks).sum(1)
        covered += _overlap(boxes + unit * np.array([-SPACE, -AIR, SPACE, AIR]), words).sum(1)
        covered += (boxes[:, :2] < self.frame[:2]).any(1) | (boxes[:, 2:] > self.frame[2:]).any(1)
        struck = _holds(_padded(boxes, AIR * unit), np.concatenate([self.intervals, *leaders])).any(1)
        crossed = _holds(_padded(boxes, -1), self.lines).any(1)
        foreign = self.marks[(np.abs((self.marks[:, :2] + self.marks[:, 2:]) / 2 - spot) > 1).any(1)]
        # Whoever sees a name takes the marker next to it for what it names, if no line says otherwise.
        to_others = _gaps(boxes, (foreign[:, :2] + foreign[:, 2:]) / 2).min(1, initial=np.inf)
        mistaken = to_others < np.where(far, NEAR[0] * unit, _gaps(boxes, spot[None])[:, 0])
        in_the_way = np.concatenate([foreign, words])
        tangled = np.array(
            [far[place] and _holds(in_the_way, _leader(spot, box, True)).any() for place, box in enumerate(boxes)]
        )
        cost = np.array([distance for distance, _ in choices]) + COVERS * covered + STRUCK * struck
        cost = cost + TANGLED * tangled + MISTAKEN * mistaken + CROSSED * crossed + LED * far
        best = int(cost.argmin())
        return boxes[best], bool(far[best])


def label_ends(axes: Axes, ends: dict[str, tuple[float, float]], colours: dict[str, str]) -> None:
    """Write the names of lines at the right of the axes, each as near to its line's end as the others allow.

    A line that ends well before the right of the axes has its name at its end.

    Args:
        axes: where the lines are, with their final limits.
        ends: by name the last point of a line.
        colours: by name that of its line.
    """
    settle(axes.figure)
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
    settle(axes.figure)
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


def _leader(spot: np.ndarray, box: np.ndarray, far: bool) -> np.ndarray:
    """Places on the line from a point to its label, where there is one."""
    return np.linspace(spot, np.clip(spot, box[:2], box[2:]), 24 if far else 0)


def _around(places: np.ndarray, radius: np.ndarray | float) -> np.ndarray:
    """Boxes around places."""
    radius = np.broadcast_to(radius, len(places))[:, None]
    return np.hstack([places - radius, places + radius])


def _padded(boxes: np.ndarray, by: float) -> np.ndarray:
    return boxes + by * np.array([-1, -1, 1, 1])


def _overlap(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which boxes lie over which others, shape (boxes, others)."""
    return ((boxes[:, None, :2] < others[:, 2:]) & (boxes[:, None, 2:] > others[:, :2])).all(-1)


def _holds(boxes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Which boxes hold which places, shape (boxes, places)."""
    return ((boxes[:, None, :2] < places) & (boxes[:, None, 2:] > places)).all(-1)


def _gaps(boxes: np.ndarray, places: np.ndarray) -> np.ndarray:
    """How far places seem from boxes with words, which point along their line; shape (boxes, places)."""
    nearest = np.clip(places, boxes[:, None, :2], boxes[:, None, 2:])
    across, upwards = np.moveaxis(nearest - places, -1, 0)
    return np.hypot(across, 2 * upwards)


def _markers(axes: Axes, unit: float) -> np.ndarray:
    """Boxes around the markers of lines and of scattered points."""
    found = [np.empty((0, 4))]
    for line in axes.lines:
        if line.get_marker() not in NOTHING:
            found.append(_around(line.get_transform().transform(line.get_xydata()), unit * line.get_markersize() / 2))
    for points in axes.collections:
        if isinstance(points, PathCollection):
            places = points.get_offset_transform().transform(np.asarray(points.get_offsets()))
            found.append(_around(places, unit * np.resize(points.get_sizes(), len(places)) ** 0.5 / 2))
    boxes = np.concatenate(found)
    return boxes[np.isfinite(boxes).all(1)]


def _places_on_lines(axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Places along intervals, and along what else is drawn as lines, close together."""
    bars = [bars for bars in axes.collections if isinstance(bars, LineCollection)]
    intervals = [bar.get_transform().transform(segment) for bar in bars for segment in bar.get_segments()]
    drawn = [line for line in axes.lines if line.get_linestyle() not in NOTHING]
    return _along(intervals), _along([line.get_transform().transform(line.get_xydata()) for line in drawn])


def _along(paths: Sequence[np.ndarray]) -> np.ndarray:
    found = [np.empty((0, 2))]
    for path in paths:
        path = path[np.isfinite(path).all(axis=1)]
        for start, end in zip(path, path[1:], strict=False):
            found.append(np.linspace(start, end, max(2, int(np.hypot(*(end - start)) / 4))))
    return np.concatenate(found)
