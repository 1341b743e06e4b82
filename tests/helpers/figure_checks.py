"""What is written in a picture, and where: for tests that no text lies over another."""

from itertools import combinations

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


def _inside(box, page):
    return page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
