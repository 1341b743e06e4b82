"""What is written in a picture, and where: for tests that no text lies over another."""

from itertools import combinations

import numpy as np
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.text import Text


def written(chart):
    """Every text that is drawn, with its box in the picture."""
    chart.draw_without_rendering()
    marks, undrawn = {}, set()
    for axes in chart.axes:
        for axis, low, high in ((axes.xaxis, 0, 2), (axes.yaxis, 1, 3)):
            for label in axis.get_ticklabels(which="both"):
                marks[id(label)] = (axes.bbox.extents[low], axes.bbox.extents[high], low)
                if not axes.axison:
                    undrawn.add(id(label))
    found = []
    for text in chart.findobj(Text):
        if not text.get_visible() or not text.get_text().strip() or id(text) in undrawn:
            continue
        box = Text.get_window_extent(text)  # of the text alone, not of its arrow
        if id(text) in marks:
            low, high, side = marks[id(text)]
            middle = (box.extents[side] + box.extents[side + 2]) / 2
            if not low - 1 <= middle <= high + 1:
                continue  # of a mark beyond the axis, which is not drawn
        found.append((text.get_text(), box))
    return found


def collisions(chart):
    """Pairs of texts that lie over each other, and texts that leave the picture."""
    texts = written(chart)
    over = [
        (first, second)
        for (first, one), (second, other) in combinations(texts, 2)
        if one.padded(-1).overlaps(other.padded(-1))
    ]
    page = chart.bbox.padded(1)
    return over + [(text, "leaves the picture") for text, box in texts if not _inside(box, page)]


def struck(chart):
    """Texts among the points of a chart that lie over a marker, or over an interval."""
    chart.draw_without_rendering()
    found = []
    for axes in chart.axes:
        places = [
            line.get_transform().transform(line.get_xydata()) for line in axes.lines if line.get_marker() != "None"
        ]
        for drawn in axes.collections:
            if isinstance(drawn, PathCollection):
                places.append(axes.transData.transform(np.asarray(drawn.get_offsets())))
            elif isinstance(drawn, LineCollection):
                segments = [drawn.get_transform().transform(segment) for segment in drawn.get_segments()]
                places += [np.linspace(segment[0], segment[-1], 200) for segment in segments]
        texts = [(text.get_text(), Text.get_window_extent(text)) for text in axes.texts if text.get_text()]
        found += [name for name, box in texts if box.count_contains(np.concatenate([np.empty((0, 2)), *places]))]
    return found


def _inside(box, page):
    return page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
