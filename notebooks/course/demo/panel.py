"""A panel of the live demo: it is on the page at once, says what it waits for, and is built behind the scenes.

What panels need (torch, a model, a chart) takes seconds, so one thread builds them one after the other, in their
order, and the page can be shown meanwhile.
"""

import html
import queue
import threading
from collections.abc import Callable
from pathlib import Path

import anywidget
import ipywidgets as ipw

from course.stills import LastingBox

Tell = Callable[[str], None]
Build = Callable[[Tell], ipw.Widget]
_waiting: "queue.Queue[Panel]" = queue.Queue()
_builder: threading.Thread | None = None
_starting = threading.Lock()


class _Arrival(anywidget.AnyWidget):
    """Nothing to see: it tells the kernel that a page is there and listens."""

    _esm = "export default { render({ model, el }) { el.style.display = 'none'; model.send('here'); } };"


class Panel(LastingBox):
    """One screen of the demo.

    Args:
        name: in a few words, as it is told while it is built.
        build: makes what is shown; it is given a function that tells the room what is being done.
    """

    def __init__(self, name: str, build: Build) -> None:
        self.name = name
        self._build, self._built = build, threading.Event()
        self.status = ipw.HTML(said(f"{name}: waiting for the panels before it …"))
        self.status.add_class("stage-status")
        arrival = _Arrival()
        arrival.on_msg(self._say_again)
        super().__init__([arrival, _look(), self.status])
        self.add_class("stage-panel")
        _start(self)

    def __repr__(self) -> str:
        return f"Panel({self.name!r})"

    def still(self) -> str:
        """Its name: what the panel shows is live, and belongs to the demo."""
        return (
            f"<p>{html.escape(self.name)}: a panel of the live demo, which <code>python -m tlkit demo</code> opens.</p>"
        )

    def wait(self) -> "Panel":
        """Wait until it is built, or has said why it cannot be."""
        self._built.wait()
        return self

    def build(self) -> None:
        """Make what is shown; an error is shown in its place."""
        try:
            inside = self._build(self._tell)
            self.children = [*self.children[:2], inside]
        except Exception as error:  # in a thread, nobody would read it
            self.status.value = alert(error)
        finally:
            self.add_class("stage-ready")
            self._built.set()

    def _say_again(self, *message: object) -> None:
        """A page that has just come may have missed what was said while it read the widgets' states."""
        self.status.send_state()
        self.send_state()

    def _tell(self, doing: str) -> None:
        self.status.value = said(f"{self.name}: {doing} …")


def said(text: str, kind: str = "") -> str:
    """A line of text for a page; what changes there is read out.

    Args:
        text: is escaped.
        kind: "good", "bad" or nothing: how it is coloured.
    """
    return f'<p role="status" class="stage-said {kind}">{html.escape(text)}</p>'


def alert(error: Exception) -> str:
    """An error as a line for a page.

    Args:
        error: what was raised.
    """
    return f'<p role="alert" class="stage-said bad">{html.escape(f"{type(error).__name__}: {error}")}</p>'


def row(*widgets: ipw.Widget) -> ipw.HBox:
    """Widgets beside each other.

    Args:
        *widgets: from left to right.
    """
    box = ipw.HBox(list(widgets))
    box.add_class("stage-row")
    return box


def choice(label: str, options: list, value: object, width: str = "24em") -> ipw.Dropdown:
    """A list to choose from.

    Args:
        label: in front of it.
        options: as `Dropdown` has them.
        value: that is chosen at first.
        width: of all.
    """
    style = {"description_width": "initial"}
    return ipw.Dropdown(options=options, value=value, description=label, style=style, layout={"width": width})


def slider(label: str, options: list, value: object, width: str = "24em") -> ipw.SelectionSlider:
    """A slider over values that are known.

    Args:
        label: in front of it.
        options: values, or pairs of a text and a value.
        value: that is chosen at first.
        width: of all.
    """
    style = {"description_width": "initial"}
    return ipw.SelectionSlider(options=options, value=value, description=label, style=style, layout={"width": width})


def button(label: str, tooltip: str, *, space: bool = False) -> ipw.Button:
    """A button.

    Args:
        label: on it.
        tooltip: what it does.
        space: whether the space bar presses it, too, while its panel is shown.
    """
    made = ipw.Button(description=label, tooltip=tooltip, layout={"width": "auto"})
    if space:
        made.add_class("stage-space")
    return made


def _look() -> ipw.HTML:
    """The style of all panels; a page takes it once or six times alike."""
    style = ipw.HTML(f"<style>{(Path(__file__).parent / 'stage.css').read_text(encoding='utf-8')}</style>")
    style.layout.display = "none"
    return style


def _start(panel: Panel) -> None:
    global _builder
    _waiting.put(panel)
    with _starting:
        if _builder is None:
            _builder = threading.Thread(target=_build_all, daemon=True)
            _builder.start()


def _build_all() -> None:
    while True:
        _waiting.get().build()
