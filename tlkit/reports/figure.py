"""The look that all charts have in common: size, colours, marks, and words for those who cannot see them.

Colours are Okabe and Ito's, told apart by the colour-blind; markers and hatches differ too, for greyscale.
"""

import base64
import io
from collections.abc import Callable
from functools import wraps

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tlkit.strategies import STRATEGIES

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
MARKERS = "osD^vPX*"
HATCHES = ["", "///", "...", "xxx", "\\\\\\", "--", "++"]
SIZE = (8, 4.5)
PLACES = {name: place for place, name in enumerate((*STRATEGIES, "zero-shot"))}


class Chart(Figure):
    """A figure that says in words what it shows: its alternative text, in a notebook's file and on its pages.

    Args:
        about: what is drawn, in one sentence; `described` sets it.
        words: what the picture says beyond its axes and names, a phrase each.
    """

    about = ""
    words: tuple[str, ...] = ()

    @property
    def alt(self) -> str:
        """Alternative text: what is drawn, the axes, and the names; the numbers are in the table beside it."""
        panels = []
        for axes in self.axes:
            named = [text.get_text() for text in [*axes.get_yticklabels(), *axes.get_xticklabels()]]
            # Not the marks of a scale, be they digits or powers in TeX, which nobody wants read out.
            places = [name for name in named if "$" not in name and any(letter.isalpha() for letter in name)]
            _, series = axes.get_legend_handles_labels()
            parts = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), ", ".join(dict.fromkeys(places + series))]
            panels.append("; ".join(part for part in parts if part))
        shown = ". ".join(filter(None, [*panels, *self.words]))
        return f"{self.about} Shown: {shown}." if shown else self.about

    def png(self, dpi: int = 100) -> str:
        """Draw the picture as a PNG file, for a page or a notebook.

        Args:
            dpi: dots per inch.

        Returns:
            The file in base64.
        """
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=dpi)
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
        chart = draw(*tables, **options)
        chart.about = draw.__doc__.splitlines()[0]
        return chart

    return drawn


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


def panels_beside(count: int) -> tuple[Chart, list[Axes]]:
    """Make an empty chart with panels side by side, on one vertical axis.

    Args:
        count: how many panels, at least 1.

    Returns:
        The chart and the axes of its panels, from left to right.
    """
    options = {"figsize": SIZE, "sharey": True, "squeeze": False, "layout": "constrained"}
    figure, panels = plt.subplots(1, count, FigureClass=Chart, **options)
    plt.close(figure)
    return figure, list(panels[0])


def colour(number: int, name: str = "") -> str:
    """Choose a colour: a strategy has the same in every chart.

    Args:
        number: place in the chart; decides for what is no strategy.
        name: of a strategy, where it is one.

    Returns:
        The colour as "#RRGGBB".
    """
    return COLOURS[PLACES.get(name, number) % len(COLOURS)]


def marker(number: int, name: str = "") -> str:
    """Choose a marker: a strategy has the same in every chart.

    Args:
        number: place in the chart; decides for what is no strategy.
        name: of a strategy, where it is one.

    Returns:
        The marker's letter in matplotlib.
    """
    return MARKERS[PLACES.get(name, number) % len(MARKERS)]


def mark(axes: Axes, x: float, name: str) -> None:
    """Draw a dashed vertical line with its name at its lower end.

    Args:
        axes: where to draw.
        x: in units of the horizontal axis.
        name: written beside the line.
    """
    axes.axvline(x, color="black", linestyle="--")
    transform = axes.get_xaxis_transform()
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    axes.text(x, 0.02, name, transform=transform, rotation=90, ha="right", va="bottom", fontsize="small", bbox=behind)
