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
    """A figure that says in words what it shows: its alternative text, in a notebook's file and on its pages."""

    about = ""

    @property
    def alt(self) -> str:
        """What it is, its axes, and what is drawn; the numbers stand in the table beside it."""
        panels = []
        for axes in self.axes:
            named = [text.get_text() for text in [*axes.get_yticklabels(), *axes.get_xticklabels()]]
            # Not the marks of a scale, be they digits or powers in TeX, which nobody wants read out.
            places = [name for name in named if "$" not in name and any(letter.isalpha() for letter in name)]
            _, series = axes.get_legend_handles_labels()
            parts = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), ", ".join(dict.fromkeys(places + series))]
            panels.append("; ".join(part for part in parts if part))
        return f"{self.about} Shown: {'. '.join(panels)}."

    def png(self, dpi: int = 100) -> str:
        """The picture as a PNG file in base64, for a page or a notebook."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=dpi)
        return base64.b64encode(buffer.getvalue()).decode()

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = {"image/png": self.png(), "text/plain": repr(self)}
        return picture, {"image/png": {"alt": self.alt}}


def described(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """A chart is about what the first line of its function says."""

    @wraps(draw)
    def drawn(*tables, **options) -> Chart:
        chart = draw(*tables, **options)
        chart.about = draw.__doc__.splitlines()[0]
        return chart

    return drawn


def new_figure() -> tuple[Chart, Axes]:
    """An empty chart with one panel."""
    figure, axes = plt.subplots(FigureClass=Chart, figsize=SIZE, layout="constrained")
    plt.close(figure)  # a notebook shows what a cell returns, once
    axes.grid(alpha=0.3)
    return figure, axes


def panels_beside(count: int) -> tuple[Chart, list[Axes]]:
    """An empty chart with so many panels side by side, on one vertical axis."""
    options = {"figsize": SIZE, "sharey": True, "squeeze": False, "layout": "constrained"}
    figure, panels = plt.subplots(1, count, FigureClass=Chart, **options)
    plt.close(figure)
    return figure, list(panels[0])


def colour(number: int, name: str = "") -> str:
    """The same for a strategy in every chart; for others by their number."""
    return COLOURS[PLACES.get(name, number) % len(COLOURS)]


def marker(number: int, name: str = "") -> str:
    """As `colour`."""
    return MARKERS[PLACES.get(name, number) % len(MARKERS)]


def mark(axes: Axes, x: float, name: str) -> None:
    """A dashed line with its name at its lower end."""
    axes.axvline(x, color="black", linestyle="--")
    transform = axes.get_xaxis_transform()
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    axes.text(x, 0.02, name, transform=transform, rotation=90, ha="right", va="bottom", fontsize="small", bbox=behind)
