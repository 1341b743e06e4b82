"""Charts that the browser draws: plotly.js behind a widget of a few lines, in one look for a projector.

plotly's own widget would do as well, but it takes more than a second to import and sends five megabytes of library with
each figure. Here the demo's server hands the library out once, as a file that the browser keeps.
"""

import os
from functools import cache
from importlib.resources import files
from pathlib import Path

import anywidget
import traitlets

from tlkit.reports.palette import FAINT, INK

LETTERS = 22  # pixels: what is legible from the back of a room on a screen that is 720 high
ADDRESS = "TLKIT_PLOTLY"  # set by the demo's server: where the library is to be had
LIMIT = "#000000"  # of a card: seen over every colour of bytes
FONT = "Source Sans 3, Segoe UI, Helvetica, Arial, sans-serif"


def library() -> Path:
    """The file of plotly.js, which comes with the package plotly."""
    return Path(str(files("plotly") / "package_data" / "plotly.min.js"))


@cache
def _module() -> str:
    """What the browser runs: the library, as an address or, where no server has it, as it is; then our lines."""
    ours = (Path(__file__).parent / "chart.js").read_text(encoding="utf-8")
    if address := os.environ.get(ADDRESS):
        return f'if (!globalThis.Plotly) await import("{address}");\n{ours}'
    return f"if (!globalThis.Plotly) {{\n{library().read_text(encoding='utf-8')}\n}}\n{ours}"


class StageChart(anywidget.AnyWidget):
    """A chart whose figure may be replaced at any time; what stays the same on the screen does not flicker.

    Args:
        figure: `data` and `layout` as plotly has them, in plain lists and numbers.
        words: what is drawn, for those who cannot see it.
    """

    figure = traitlets.Dict().tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)

    def __init__(self, **values) -> None:
        self._esm = _module()
        super().__init__(**values)

    def show(self, figure: dict, words: str) -> None:
        """Draw something else.

        Args:
            figure: as for the widget.
            words: as for the widget.
        """
        self.words = words
        self.figure = figure


def axis(title: str = "", **more: object) -> dict:
    """An axis in the look of the stage, which a mouse cannot move.

    Args:
        title: with its unit.
        more: of plotly's axes.
    """
    return {
        "title": {"text": title, "standoff": 10, "font": {"size": LETTERS}},
        "fixedrange": True,
        "gridcolor": "#DDDDDD",
        "zeroline": False,
        "linecolor": FAINT,
        "ticks": "outside",
        "tickcolor": FAINT,
        **more,
    }


def layout(width: int, height: int, title: str = "", **more: object) -> dict:
    """The look of the stage: large letters, a white ground, no room lost.

    Args:
        width: in pixels of a screen that is 1280 wide.
        height: in the same pixels.
        title: one line over the chart.
        more: of plotly's layout.
    """
    return {
        "width": width,
        "height": height,
        "title": {"text": title, "x": 0, "xref": "paper", "xanchor": "left", "y": 0.99, "yanchor": "top"}
        | {"font": {"size": LETTERS, "weight": 700}},
        "font": {"family": FONT, "size": LETTERS, "color": INK},
        "hoverlabel": {"font": {"size": LETTERS, "family": FONT}},
        "margin": {"l": 10, "r": 20, "t": 38 if title else 10, "b": 10},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": False,
        **more,
    }
