"""What stays of widgets: a panel is shown together with a still, for pages where nothing answers its controls.

A notebook that is exported, printed or opened again has no widgets. There the still is seen: what the panel showed and
how it was set, as HTML, and as plain text.
"""

import html
import re
from collections.abc import Iterator
from functools import cache
from weakref import WeakSet

import ipywidgets as ipw
from nbformat import NotebookNode

VIEW = "application/vnd.jupyter.widget-view+json"
BEGINS = '<div class="tlkit-still"'
HOW = "The controls work after this cell has run."
_shown: "WeakSet[LastingBox]" = WeakSet()


class LastingBox(ipw.VBox):
    """Widgets below each other that leave a still behind.

    What a still says is brought up to date when another cell has run, and not at each change: a new still makes the
    page draw the widgets anew, and whoever is typing in them would lose their place.
    """

    _still, _place = "", None

    def still(self) -> str:
        """What is seen now, as HTML without controls."""
        return "".join(_blocks(self)) + f'<p style="opacity:.75">{HOW}</p>'

    def refresh(self) -> None:
        """Bring the still up to date on the page, if it has changed."""
        if self._place is not None and self.still() != self._still:
            self._place.update(self._bundle(), raw=True)

    def _bundle(self) -> dict[str, object]:
        self._still = self.still()
        view = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        framed = f'{BEGINS} style="border-left:.2em solid #999;padding-left:.9em">{self._still}</div>'
        return {VIEW: view, "text/html": framed, "text/plain": f"[panel] {words_of(self._still)}"}

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        self._place = display(self._bundle(), raw=True, display_id=True)
        _shown.add(self)
        if get_ipython() is not None:
            _listen(get_ipython())


def without_views(notebook: NotebookNode | dict) -> None:
    """Leave of each panel in a notebook its still, and of the state of widgets nothing.

    Args:
        notebook: of format 4, changed in place. Widgets that have no still are left as they are.
    """
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "".join(data.get("text/html", "")).startswith(BEGINS):
                data.pop(VIEW, None)


def words_of(page: str) -> str:
    """The words of a piece of HTML on one line; a picture's are those that stand for it."""
    page = re.sub(r'<img\b[^>]*?\balt="([^"]*)"[^>]*>', r" \1 ", page)
    page = re.sub(r"</?(b|strong|em|code|span)\b[^>]*>", "", page)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


@cache
def _listen(shell: object) -> None:
    shell.events.register("post_run_cell", _refresh_all)


def _refresh_all(*_: object) -> None:
    for panel in list(_shown):
        panel.refresh()


def _blocks(widget: ipw.Widget) -> Iterator[str]:
    """What a widget shows, as pieces of HTML: settings that follow each other share a paragraph."""
    settings: list[str] = []
    for one in _leaves(widget):
        if isinstance(one, ipw.HTML):
            if settings:
                yield f"<p>{' · '.join(settings)}</p>"
            settings = []
            yield one.value
        elif one.description and hasattr(one, "value") and not isinstance(one, ipw.FloatProgress):
            settings.append(f"{html.escape(one.description)}: <strong>{html.escape(_chosen(one))}</strong>")
    if settings:
        yield f"<p>{' · '.join(settings)}</p>"


def _leaves(widget: ipw.Widget) -> Iterator[ipw.Widget]:
    children = getattr(widget, "children", None)
    if children is None:
        yield widget
    for child in children or ():
        yield from _leaves(child)


def _chosen(control: ipw.Widget) -> str:
    """How a control is set; of one that is not, what there is to choose from."""
    if control.value not in (None, ""):
        return str(getattr(control, "label", None) or control.value)
    return " / ".join(map(str, getattr(control, "options", ["…"])))
