"""An experiment in JupyterLab: it is run, decided, kept for the next notebook, and whole when opened again."""

import sys
import time

import jupytext
import nbformat
import pytest
from served_pages import ROOT, TOKEN, free_port, kept, opened, served, shows

pytestmark = pytest.mark.browser
LESSON = ROOT / "notebooks" / "02_inside_a_language_model.py"
BEFORE = """\
import tlkit as tl

tl.setup()
general, tokenizer = tl.load_corpus("general"), tl.load_model("tiny").tokenizer
"""
STUDENT = 'notes.run(measure, removed=7, text=range(3))\nnotes.decide("it is needed")'
ANEW = 'notes.run(measure, removed=7, text=[3, 4])\nnotes.run(measure, text=[3, 4])\nnotes.decide("it is needed")'


@pytest.fixture
def notebook(tmp_path):
    """The experiment of lesson 2 with what a student writes, and not the half hour before it."""
    cells = jupytext.read(LESSON).cells
    place = next(n for n, cell in enumerate(cells) if cell.source.startswith("## Your experiment"))
    code = [BEFORE, cells[place + 1].source, STUDENT, ANEW, "notes"]
    made = nbformat.v4.new_notebook(cells=[cells[place], *map(nbformat.v4.new_code_cell, code)])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for name in ("first", "second"):
        nbformat.write(made, tmp_path / f"{name}.ipynb")
    return tmp_path


def waited(holds) -> None:
    for _ in range(900):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("waited for 90 s")


def test_a_student_runs_an_experiment_in_jupyterlab(browser, notebook):
    port, mine = free_port(), notebook / "progress.jsonl"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    here = {"TLKIT_PROGRESS": str(mine), "PYTHONPATH": str(ROOT)}
    with served(command, f"http://localhost:{port}", notebook, **here):
        address = f"http://localhost:{port}/lab/tree/{{}}.ipynb?token={TOKEN}&reset"
        page, wrong = opened(browser, address.format("first"))
        cards = page.locator(".tlkit-lab")
        for name, lines in (("first", 12), ("second", 14)):  # the second one in a kernel of its own
            if name == "second":
                page.goto(address.format(name))
            shows(page, "| Idle")
            page.get_by_role("menuitem", name="Run", exact=True).click()
            page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
            waited(lambda lines=lines: mine.is_file() and len(mine.read_text(encoding="utf-8").splitlines()) >= lines)
            shows(page, "| Idle")
            if name == "first":
                shows(page, "Only texts 0, 1 and 2 were run with both settings")
                shows(page, "✗ not yet")
                page.keyboard.press("Control+s")
                page.wait_for_timeout(1500)
        assert len(mine.read_text(encoding="utf-8").splitlines()) == 10 + 4, "no run twice; each decision counts"
        shows(page, "✓ supported").evaluate("place => place.scrollIntoView({block: 'center'})")
        kept(page, "experiment")
        cards.last.evaluate("place => place.scrollIntoView()")
        assert "removed=7" in cards.last.inner_text() and cards.last.get_by_text("●").count() == 5
        kept(page, "lab_notebook")
        page.goto(address.format("first"))  # what is stored is shown again
        cards.last.wait_for()
        assert wrong == []
        page.close()
