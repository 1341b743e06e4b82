"""What all panels share: a view is a picture and its words, and a panel shows one below its controls."""

import base64
import html
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import ipywidgets as ipw
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDGET = "application/vnd.jupyter.widget-view+json"
# Small figures that are shown large: letters of 10 points are legible from the back of a room.
WIDTH, DOTS = 6.6, 200  # inches; dots per inch
SHOWN = 760  # pixels, of a picture in a notebook that is read


@dataclass(frozen=True)
class View:
    """What a panel shows.

    Attributes:
        text: what the picture says, in words.
        figure: the picture, if matplotlib draws it.
        page: the picture, if it is made of HTML.
    """

    text: str
    figure: Figure | None = None
    page: str = ""

    def png(self) -> bytes:
        """The figure as a PNG file."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=DOTS)
        return buffer.getvalue()

    def picture(self) -> str:
        """The picture as HTML, with its words as alternative text."""
        if self.figure is None:
            return self.page
        source = base64.b64encode(self.png()).decode()
        return f'<img alt="{html.escape(self.text)}" src="data:image/png;base64,{source}" style="width:{SHOWN}px">'

    def output(self) -> dict[str, str | bytes]:
        """The same as an ordinary output of a cell, by the type of its contents; nothing where it shows nothing."""
        if not self.text:
            return {}
        shown = {"text/html": self.page} if self.figure is None else {"image/png": self.png()}
        return {"text/plain": self.text} | shown


def new_figure(height: float, columns: Sequence[float] = (1,)) -> tuple[Figure, list[Axes]]:
    """Make an empty figure. It is none of pyplot's, so that a thread may draw it.

    Args:
        height: in inches, of which the width has `WIDTH`.
        columns: how wide its parts are, from left to right.
    """
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    parts = figure.subplots(1, len(columns), width_ratios=columns, squeeze=False)[0]
    for axes in parts:
        axes.spines[["top", "right"]].set_visible(False)
    return figure, list(parts)


class Panel(ipw.VBox):
    """Controls, and below them what they show. A page without widgets keeps what was shown at first.

    Args:
        *rows: of controls, from top to bottom.
    """

    def __init__(self, *rows: ipw.Widget) -> None:
        self.said, self.picture, self.first = ipw.HTML(), ipw.HTML(), None
        super().__init__([*rows, self.said, self.picture])
        self.add_class("course-panel")

    def say(self, text: str) -> None:
        """Say something below the controls; what changes there is read out.

        Args:
            text: is escaped.
        """
        self.said.value = f'<p role="status" style="line-height:1.4">{html.escape(text)}</p>'

    def show(self, view: View) -> None:
        """Show a picture, and say its words.

        Args:
            view: what is shown.
        """
        self.first = self.first or view
        self.picture.value = view.picture()
        self.say(view.text)

    @contextmanager
    def working(self, doing: str = "") -> Iterator[None]:
        """Say what takes time. An error in a callback would end in a log that nobody reads: the panel shows it.

        Args:
            doing: what is being done.
        """
        if doing:
            self.say(f"{doing} …")
        try:
            yield
        except Exception as error:
            words = html.escape(f"{type(error).__name__}: {error}")
            self.said.value = f'<p role="alert" style="color:#a00000;line-height:1.4">{words}</p>'

    def _ipython_display_(self) -> None:
        widget = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        first = self.first or View("")
        notes = {"image/png": {"width": SHOWN, "alt": first.text}}
        display({WIDGET: widget} | first.output(), metadata=notes, raw=True)


def row(*widgets: ipw.Widget) -> ipw.HBox:
    """Controls beside each other, as far as there is room.

    Args:
        *widgets: from left to right.
    """
    return ipw.HBox(list(widgets), layout={"flex_flow": "row wrap", "align_items": "center", "grid_gap": "0 1em"})


def choice(label: str, options: Sequence, value: object) -> ipw.Dropdown:
    """A list to choose from.

    Args:
        label: in front of it.
        options: values, or pairs of a text and a value.
        value: what is chosen at first.
    """
    style = {"description_width": "initial"}
    return ipw.Dropdown(options=options, value=value, description=label, style=style, layout={"width": "auto"})


def button(label: str, tooltip: str, act: Callable[[], object], *, space: bool = False) -> ipw.Button:
    """A button.

    Args:
        label: on it.
        tooltip: what it does.
        act: is called when it is pressed.
        space: whether the live demo lets the space bar press it, too.
    """
    made = ipw.Button(description=label, tooltip=tooltip, layout={"width": "auto"})
    made.on_click(lambda pressed: act())
    if space:
        made.add_class("stage-space")
    return made


def on_change(act: Callable[[], object], *controls: ipw.Widget) -> None:
    """Call a function whenever one of some controls is set.

    Args:
        act: is called without arguments.
        *controls: that have a value.
    """
    for control in controls:
        control.observe(lambda change: act(), "value")
