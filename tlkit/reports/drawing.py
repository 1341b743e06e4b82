"""What schematic pictures are drawn with: colours with a meaning, paper, boxes with words, and arrows."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tlkit.reports.figure import COLOURS, INK, Chart, new_figure
from tlkit.reports.palette import ADAPTER as ADAPTER
from tlkit.reports.palette import GRADIENT, TRAINED
from tlkit.reports.palette import PASSED as PASSED
from tlkit.reports.palette import SPARED as SPARED

DARK = (TRAINED, GRADIENT, COLOURS[2])  # grounds on which words are white
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}  # words on a hatch or on a line
Point = tuple[float, float]


def paper(
    height: float, right: float = 1.0, top: float = 1.0, *, left: float = 0.0, bottom: float = 0.0
) -> tuple[Chart, Axes]:
    """An empty chart whose axes are only paper.

    Args:
        height: of the picture, in inches.
        right: the largest place on the horizontal axis.
        top: the largest place on the vertical axis.
        left: the smallest place on the horizontal axis.
        bottom: the smallest place on the vertical axis.

    Returns:
        The chart, and its axes.
    """
    figure, axes = new_figure(height)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axis("off")
    return figure, axes


def box(axes: Axes, corner: Point, width: float, height: float, text: str = "", below: str = "", **style) -> None:
    """A rounded box with words in it, legible on a hatch too.

    Args:
        axes: to draw on.
        corner: its lower left corner.
        width: in units of the axes.
        height: in units of the axes.
        text: in its middle, small; a bold name at its top where there is something `below`.
        below: what is in it, small, under its name.
        style: of the patch, such as `facecolor`; `rounding` is the radius of its corners, `fontsize` that of words that
            stand alone.
    """
    rounding, fontsize = style.pop("rounding", 1), style.pop("fontsize", "small")
    style = {"edgecolor": INK, "facecolor": "white"} | style
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=f"round,pad=0,rounding_size={rounding}", **style))
    words = {"ha": "center", "va": "center", "color": "white" if style["facecolor"] in DARK else INK}
    words |= {"bbox": BEHIND} if style.get("hatch") else {}
    middle = corner[0] + width / 2
    if below:
        axes.text(middle, corner[1] + 0.82 * height, text, fontweight="bold", **words)
        axes.text(middle, corner[1] + 0.38 * height, below, fontsize="small", **words)
    elif text:
        axes.text(middle, corner[1] + height / 2, text, fontsize=fontsize, **words)


def arrow(axes: Axes, start: Point, end: Point, text: str = "", *, shade: str = INK, **style) -> None:
    """An arrow with a word beside it: over one that lies, to the right of one that stands.

    Args:
        axes: to draw on.
        start: where it begins.
        end: where its head is.
        text: the word.
        shade: of arrow and word.
        style: of the arrow, such as `linewidth` or `connectionstyle`.
    """
    style = {"arrowstyle": "-|>", "color": shade, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0} | style
    axes.annotate("", end, start, arrowprops=style)
    if text:
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        lies = start[1] == end[1]
        offset = {"xytext": (0, 3) if lies else (6, 0), "textcoords": "offset points", "fontsize": "small"}
        offset |= {"ha": "center" if lies else "left", "va": "bottom" if lies else "center"}
        axes.annotate(text, middle, color=shade, **offset)
