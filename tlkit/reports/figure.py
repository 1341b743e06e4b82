"""What all pictures have in common: colours, and a figure that says in words what it shows."""

import base64
import io
import textwrap
from collections.abc import Callable
from functools import wraps

import matplotlib.pyplot as plt
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's, told apart by the colour-blind.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
INK, FAINT = "#222222", "#666666"
SIZE = (8, 4.5)
TITLE_WIDTH = 72  # characters in a line of a title
# White ground, legible on a dark page, too.
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


class Chart(Figure):
    """A figure with an alternative text."""

    about = ""  # what is drawn, a sentence; set by `described`
    finding = ""  # what the numbers say, without a full stop: the title; set by `headline`
    words: tuple[str, ...] = ()  # phrases in the picture, beyond its axes and names

    @property
    def alt(self) -> str:
        sentence = f"{self.about} {self.finding}." if self.finding else self.about
        return f"{sentence} Shown: {'. '.join(self.words)}." if self.words else sentence

    def savefig(self, *where, **options) -> None:
        """As matplotlib's, whatever style is set."""
        with matplotlib.style.context(LOOK):
            super().savefig(*where, **options)

    def png(self) -> str:
        """A PNG file in base64."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return base64.b64encode(buffer.getvalue()).decode()

    def _repr_mimebundle_(self, include=None, exclude=None):
        picture = {"image/png": self.png(), "text/plain": repr(self)}
        return picture, {"image/png": {"alt": self.alt}}


def described(draw: Callable[..., Chart]) -> Callable[..., Chart]:
    """For a function that draws: the first line of its docstring is what the chart is about."""

    @wraps(draw)
    def drawn(*tables, **options) -> Chart:
        with matplotlib.style.context(LOOK):
            chart = draw(*tables, **options)
            if engine := chart.get_layout_engine():
                engine.execute(chart)
            chart.set_layout_engine("none")  # what is drawn later moves no panel, and computes no layout again
        chart.about = draw.__doc__.splitlines()[0]
        return chart

    return drawn


def new_figure(height: float = SIZE[1], panels: int = 1) -> tuple[Chart, Axes]:
    """An empty chart of a height in inches, and its axes; panels share the vertical one."""
    options = {"figsize": (SIZE[0], height), "layout": "constrained", "sharey": True}
    figure, axes = plt.subplots(1, panels, FigureClass=Chart, **options)
    plt.close(figure)  # a notebook shows what a cell returns, once
    for panel in figure.axes:
        panel.grid(alpha=0.3)
    return figure, axes


def headline(figure: Chart, finding: str) -> None:
    """Set the title of a chart."""
    figure.finding = finding
    lines = max(1, -(-len(finding) // TITLE_WIDTH))
    width = min(TITLE_WIDTH, len(finding) // lines + 10)  # so that no word stands alone in the last line
    figure.suptitle(textwrap.fill(finding, width), x=0.01, ha="left", fontsize="large", fontweight="bold")


def short(value: float) -> str:
    """Three digits that count and a letter for the unit: 0.0123, 384, 1.24k, 4.04M."""
    for unit, size in {"B": 1e9, "M": 1e6, "k": 1e3}.items():
        if abs(value) >= 0.9995 * size:  # which is rounded to 1
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
