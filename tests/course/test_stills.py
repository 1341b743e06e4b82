"""What is left of a panel on a page that has no widgets: what was seen last, in words and as a picture."""

import ipywidgets as ipw
import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook, new_output

from course.stills import BEGINS, VIEW, LastingBox, without_views, words_of
from course.widgets import quiz

RUN = [
    'import tlkit as tl\ntl.setup()\npanel = tl.quiz("quiz05")\npanel',
    'tl.predict("p05_1")',
    'panel.children[0].value = "d"',
    "from tlkit.jobs import Job\nwith Job() as job, job.part('training') as part:\n    part.ended('9 steps')",
]


@pytest.fixture(scope="module")
def executed():
    """A lesson in short, after it was run from top to bottom."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in RUN])
    NotebookClient(notebook, kernel_name="python3").execute()
    return notebook


def plain(notebook, cell):
    return [output.data["text/plain"] for output in notebook.cells[cell].outputs if "data" in output]


def test_a_choice_that_was_made_is_in_the_still_once_another_cell_has_run(executed):
    (said,) = plain(executed, 0)
    assert said.startswith("[panel] Your choice: d ✓ right quiz05 ")
    assert VIEW in executed.cells[0].outputs[0].data, "and the widget is still there, too"


def test_a_saved_lesson_has_no_widget_and_loses_nothing(executed):
    notebook = nbformat.from_dict(executed)
    without_views(notebook)
    assert "widgets" not in notebook.metadata and VIEW not in nbformat.writes(notebook)
    assert [len(plain(notebook, cell)) for cell in range(4)] == [1, 2, 0, 1]
    nbformat.validate(notebook)


@pytest.mark.parametrize("saved", [False, True], ids=["with its widgets", "without"])
def test_an_exported_lesson_is_whole(executed, saved):
    from nbconvert import HTMLExporter

    notebook = nbformat.from_dict(executed)
    if saved:
        without_views(notebook)
    else:
        notebook.metadata.pop("widgets", None)  # as a page saves it that does not keep the state of widgets
    page, _ = HTMLExporter(template_name="basic").from_notebook_node(notebook)
    assert "Your choice: <strong>d</strong>" in page and "Your guess (%): <strong>…</strong>" in page
    assert "training: 9 steps; took 0 s" in page
    assert VIEW not in page and "VBox(" not in page and "HBox(" not in page and "model_id" not in page


def test_a_still_says_how_every_control_is_set_and_shows_what_is_shown():
    picture = '<img alt="2 &lt; 3" src="data:image/png;base64,AAAA">'
    choice = ipw.Dropdown(options=["a<b", "c"], value="a<b", description="Model")
    row = ipw.HBox([choice, ipw.Text(value="", description="Guess"), ipw.Button(description="Start")])
    box = LastingBox([row, ipw.FloatProgress(description="Progress"), ipw.HTML("<p>it <b>fits</b></p>" + picture)])
    page = box.still()
    assert page.startswith("<p>Model: <strong>a&lt;b</strong> · Guess: <strong>…</strong></p><p>it <b>fits</b></p>")
    assert picture in page and "Start" not in page and "Progress" not in page
    assert words_of(page).startswith("Model: a<b · Guess: … it fits 2 < 3 The controls")


def test_what_is_no_panel_of_ours_is_left_as_it_is():
    other = new_output("display_data", {VIEW: {"model_id": "1"}, "text/html": "<p>a plot</p>", "text/plain": "Plot()"})
    bare = new_output("display_data", {VIEW: {"model_id": "2"}, "text/plain": "Bar()"})
    notebook = new_notebook(cells=[new_code_cell("plot", outputs=[other, bare])], metadata={"widgets": {"state": {}}})
    before = nbformat.from_dict(notebook)
    without_views(notebook)
    assert notebook.cells == before.cells and notebook.metadata == {}


def test_a_still_is_told_again_only_where_it_has_changed():
    told = []

    class Place:
        def update(self, data, raw):
            told.append(data)

    panel = quiz("quiz05")
    panel.refresh()  # it was not shown anywhere
    panel._bundle()
    panel._place = Place()
    panel.refresh()
    assert told == []
    panel.children[0].value = "a"
    panel.refresh()
    panel.refresh()
    assert len(told) == 1 and told[0]["text/html"].startswith(BEGINS) and "✗ not yet" in told[0]["text/plain"]
    assert told[0][VIEW]["model_id"] == panel.model_id
