"""The look that all charts have in common: size, colours, marks, and words for those who cannot see them.

Colours are Okabe and Ito's, told apart by the colour-blind; markers and hatches differ too, for greyscale.
"""

import base64
import io
import re
import textwrap
from collections.abc import Callable, Iterable
from functools import wraps

import matplotlib.pyplot as plt
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from tlkit.names import CLASSIC
from tlkit.reports.palette import COLOURS, FAINT, INK

MARKERS = "osD^vPX*"
UNTOUCHED = "untouched"  # the model before any training
SIZE = (8, 4.5)
TITLE_WIDTH = 72  # characters in a line of a title
# A picture brings its own white ground, whatever style a reader has set: so it is legible on a dark page, too.
LOOK = [
    "default",
    {
        "figure.facecolor": "white",
        "savefig.facecolor": "white",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "hatch.linewidth": 0.6,
    },
]
PLACES = {name: place for place, name in enumerate((*CLASSIC, "zero-shot"))}


class Chart(Figure):
    """A figure that says in words what it shows: its alternative text, in a notebook's file and on its pages.

    Args:
        about: what is drawn, in one sentence; `described` sets it.
        finding: what the numbers say, in one sentence without a full stop; `headline` sets it, as the title.
        words: what the picture says beyond its axes and names, a phrase each.
    """

    about = ""
    finding = ""
    words: tuple[str, ...] = ()

    @property
    def alt(self) -> str:
        """Alternative text: what is drawn, what it says, the axes, and the names; the numbers are in the table."""
        panels = []
        for axes in self.axes:
            named = [text.get_text() for text in [*axes.get_yticklabels(), *axes.get_xticklabels()]]
            # Not the marks of a scale, be they digits or powers in TeX, which nobody wants read out.
            places = [name for name in named if "$" not in name and any(letter.isalpha() for letter in name)]
            places = [" ".join(name.split()) for name in places if not re.fullmatch(r"[\d.,]+ (million|billion)", name)]
            _, series = axes.get_legend_handles_labels()
            title = axes.get_title() or axes.get_title("left")
            parts = [title, axes.get_xlabel(), axes.get_ylabel(), ", ".join(dict.fromkeys(places + series))]
            panels.append("; ".join(part for part in parts if part))
        shown = ". ".join(filter(None, [*panels, *self.words]))
        sentence = f"{self.about} {self.finding}." if self.finding else self.about
        return f"{sentence} Shown: {shown}." if shown else sentence

    def savefig(self, *where, **options) -> None:
        """Write the picture, on its white ground whatever style is set; as matplotlib's own `savefig` otherwise."""
        with matplotlib.style.context(LOOK):
            super().savefig(*where, **options)

    def png(self) -> str:
        """Draw the picture as a PNG file in base64, for a page or a notebook."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return base64.b64encode(buffer.getvalue()).decode()

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = {"image/png": self.png(), "text/plain": repr(self)}
        return picture, {"image/png": {"alt": self.alt}}


def described(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """Let a chart be about what the first line of its function's docstring says.

    Args:
        draw: a function that returns a `Chart`.

    Returns:
        The same function; the `about` of its charts is set.
    """

    @wraps(draw)
    def drawn(*tables, **options) -> Chart:
        with matplotlib.style.context(LOOK):
            chart = draw(*tables, **options)
            settle(chart)
            chart.set_layout_engine("none")  # what is drawn later moves no panel, and computes no layout again
        chart.about = draw.__doc__.splitlines()[0]
        return chart

    return drawn


def settle(figure: Figure) -> None:
    """Give each panel its place in the picture as far as that is known, without drawing anything.

    Args:
        figure: whose layout is computed; one without an engine for that stays as it is.
    """
    if engine := figure.get_layout_engine():
        engine.execute(figure)


def new_figure(height: float = SIZE[1]) -> tuple[Chart, Axes]:
    """Make an empty chart with one panel.

    Args:
        height: in inches.

    Returns:
        The chart and its axes.
    """
    figure, axes = plt.subplots(FigureClass=Chart, figsize=(SIZE[0], height), layout="constrained")
    plt.close(figure)  # a notebook shows what a cell returns, once
    axes.grid(alpha=0.3)
    return figure, axes


def height_for(rows: float, each: float = 0.34) -> float:
    """Choose a height that leaves each row of a chart room for a line of text.

    Args:
        rows: how many there are.
        each: inches of a row.

    Returns:
        Inches, with room for a title and the axis below.
    """
    return 1.4 + each * max(rows, 2)


def headline(figure: Chart, finding: str) -> None:
    """Write what a chart says over it, at the left.

    Args:
        figure: all its panels are there already.
        finding: a sentence without a full stop, made from the numbers that are drawn.
    """
    figure.finding = finding
    lines = max(1, -(-len(finding) // TITLE_WIDTH))
    width = min(TITLE_WIDTH, len(finding) // lines + 10)  # so that no word stands alone in the last line
    figure.suptitle(textwrap.fill(finding, width), x=0.01, ha="left", fontsize="large", fontweight="bold")


def panels_beside(count: int, *, height: float = SIZE[1], rows: int = 1, **options) -> tuple[Chart, list[Axes]]:
    """Make an empty chart with panels side by side, on one vertical axis.

    Args:
        count: how many panels, at least 1.
        height: in inches.
        rows: of panels below each other, filled from the left; places that are left over stay empty.
        options: of matplotlib's `subplots`, such as sharex.

    Returns:
        The chart and the axes of its panels, from left to right.
    """
    options = {"sharey": True} | options
    columns = -(-count // rows)
    size = {"figsize": (SIZE[0], height), "squeeze": False, "layout": "constrained"}
    figure, panels = plt.subplots(rows, columns, FigureClass=Chart, **size, **options)
    plt.close(figure)
    panels = list(panels.flat)
    for spare in panels[count:]:
        spare.remove()
    return figure, panels[:count]


def styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Choose a colour and a marker for each name: a classic strategy has the same in every chart.

    Args:
        names: of all that is drawn in the chart.

    Returns:
        By name the colour as "#RRGGBB" and the marker's letter. Other names take colours that are left, and where there
        are more of them than colours, markers tell them apart.
    """
    names = list(dict.fromkeys(names))
    taken = {PLACES[name] for name in names if name in PLACES}
    free = [place for place in range(len(COLOURS)) if place not in taken] or list(range(len(COLOURS)))
    others = [name for name in names if name not in PLACES]
    chosen = {name: (COLOURS[PLACES[name]], MARKERS[PLACES[name]]) for name in names if name in PLACES}
    for number, name in enumerate(others):
        turn, place = divmod(number, len(free))
        chosen[name] = COLOURS[free[place]], MARKERS[(free[place] + 3 * turn) % len(MARKERS)]
    return chosen


def dark(shade: str) -> str:
    """Darken a colour, so that letters in it are legible on white.

    Args:
        shade: as "#RRGGBB".

    Returns:
        The darker colour as "#RRGGBB".
    """
    return "#" + "".join(f"{int(0.62 * int(shade[place : place + 2], 16)):02X}" for place in (1, 3, 5))


def mark(axes: Axes, x: float, name: str) -> None:
    """Draw a dashed vertical line with its name over its upper end.

    Args:
        axes: where to draw.
        x: in units of the horizontal axis.
        name: written at the line; a line of text each for names that stand beside each other.
    """
    axes.axvline(x, color=INK, linestyle="--", linewidth=1.2, label=name)
    above = {"xytext": (0, 3), "textcoords": "offset points", "ha": "center", "va": "bottom", "fontsize": "small"}
    axes.annotate(name, (x, 1), xycoords=axes.get_xaxis_transform(), **above)


def plain_numbers(axis, low: float, high: float) -> None:
    """Write the marks of a log scale as people do: many on a short stretch, 1, 2 and 5 on a longer one.

    Args:
        axis: of `Axes`, with a logarithmic scale.
        low: the least number that is drawn.
        high: the largest.
    """
    axis.set_major_formatter("{x:,.0f}" if low >= 10 else "{x:,g}")
    marks = (1, 2, 5) if high < 100 * low else (1,)
    if high < 5 * low:
        marks = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    axis.set_major_locator(LogLocator(subs=marks))
    axis.set_minor_formatter("")
