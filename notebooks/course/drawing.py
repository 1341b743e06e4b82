"""What pictures of models have in common: colours with a meaning, boxes and arrows."""

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tlkit.reports.figure import COLOURS, INK, Chart, new_figure

# What a part of a model does, the same in every picture.
TRAINED, ADAPTER, GRADIENT = COLOURS[0], COLOURS[4], COLOURS[1]
PASSED, SPARED = "#D6E6F2", "#F2F2F2"  # frozen, with and without backpropagation through it
DARK = (TRAINED, GRADIENT, COLOURS[2])  # grounds on which words are white
BEHIND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1}  # words on a hatch or on a line
Point = tuple[float, float]


def paper(
    height: float, right: float = 1.0, top: float = 1.0, *, left: float = 0.0, bottom: float = 0.0
) -> tuple[Chart, Axes]:
    """An empty chart of that height in inches, whose axes are only paper with these ends."""
    figure, axes = new_figure(height)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.axis("off")
    return figure, axes


def box(axes: Axes, corner: Point, width: float, height: float, text: str = "", **style) -> None:
    """A rounded box with words in its middle, legible on a hatch too.

    Args:
        corner: its lower left corner.
        height: in units of the axes.
        style: of the patch, such as `facecolor`; `rounding` is the radius of its corners, `fontsize` that of the words.
    """
    rounding, fontsize = style.pop("rounding", 1), style.pop("fontsize", "small")
    style = {"edgecolor": INK, "facecolor": "white"} | style
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=f"round,pad=0,rounding_size={rounding}", **style))
    words = {"ha": "center", "va": "center", "color": "white" if style["facecolor"] in DARK else INK}
    words |= {"bbox": BEHIND} if style.get("hatch") else {}
    if text:
        axes.text(corner[0] + width / 2, corner[1] + height / 2, text, fontsize=fontsize, **words)


def arrow(axes: Axes, start: Point, end: Point, *, shade: str = INK, **style) -> None:
    """An arrow; `style` is of matplotlib's arrows, such as `linewidth` or `connectionstyle`."""
    style = {"arrowstyle": "-|>", "color": shade, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0} | style
    axes.annotate("", end, start, arrowprops=style)
