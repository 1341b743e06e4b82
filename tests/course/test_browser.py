"""The panels of the lessons in a real browser: on a page that Voilà serves, and a lesson in JupyterLab.

Screenshots are kept in `results/screenshots`. Where `CI` is set, a missing Chromium is a failure.
"""

import shutil
import sys

import nbformat
import pytest
from served_pages import ROOT, TOKEN, free_port, kept, opened, served, shows

pytestmark = pytest.mark.browser
PAGE = {
    "1. What does a strategy train?": "tl.strategy_map()",
    "2. Train it": "lab = tl.TrainingLab()\nlab",
    "3. Before and after": (
        "tiny = tl.load_model('tiny')\n"
        "tl.before_and_after(tiny.model, lambda: lab.state.model if lab.state else None, tiny.tokenizer)"
    ),
    "4. What fits a card?": "tl.memory_explorer()",
    "5. Out of memory": "tl.ladder_player()",
}


@pytest.fixture(scope="module")
def demo(browser, tmp_path_factory):
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    notebook.metadata.kernelspec.language = "python"
    notebook.cells = [nbformat.v4.new_code_cell("import tlkit as tl\ntl.setup();")]
    for heading, code in PAGE.items():
        notebook.cells += [nbformat.v4.new_markdown_cell(f"## {heading}"), nbformat.v4.new_code_cell(code)]
    path = tmp_path_factory.mktemp("page") / "panels.ipynb"
    nbformat.write(notebook, path)
    port = free_port()
    command = [sys.executable, "-m", "voila", "--Voila.ip=localhost", f"--port={port}", "--template=classroom"]
    command += [f"--token={TOKEN}", "--no-browser", "--VoilaConfiguration.extension_denylist=jupyterlab-jupytext"]
    here = {"JUPYTER_PATH": str(ROOT / "notebooks" / "share"), "PYTHONPATH": str(ROOT)}
    with served([*command, str(path)], f"http://localhost:{port}", **here):
        page, wrong = opened(browser, f"http://localhost:{port}/?token={TOKEN}")
        page.get_by_role("button", name="Next attempt").wait_for()
        yield page, wrong, port
        page.close()


def section(page, heading: str):
    """Bring a section of the demo to the top, for its screenshot."""
    page.get_by_role("heading", name=heading).evaluate("place => place.scrollIntoView()")


def test_strategy_map(demo):
    page, _, _ = demo
    section(page, "1. What does a strategy train?")
    shows(page, "full: 4,036,800 of 4,036,800 values trainable")
    page.get_by_label("Strategy").nth(0).select_option("freeze_embeddings")
    shows(page, "freeze_embeddings: 3,250,368 of 4,036,800 values trainable")
    box = page.get_by_label("embedding: 0 of 786,432 values trained")
    box.focus()
    assert box.get_attribute("title") == "embedding: 0 of 786,432 values trained"
    kept(page, "strategy_map")


def test_training_lab_stops_and_the_result_is_compared(demo):
    page, _, _ = demo
    section(page, "2. Train it")
    page.get_by_label("Learning rate").select_option("0.002")
    page.get_by_label("Epochs").select_option("4")
    page.get_by_role("button", name="Start").click()
    shows(page, "step 4 of")
    page.get_by_role("button", name="Stop").press("Enter")  # from the keyboard
    stopped = shows(page, "Stopped, and kept.").inner_text()
    assert int(stopped.split("step ")[1].split(" of ")[0]) < 60
    kept(page, "training_lab")
    section(page, "3. Before and after")
    page.get_by_label("Prompt").fill("The borrow checker")
    page.get_by_role("button", name="Continue").click()
    shows(page, "Greedy: the same each time.")
    assert page.get_by_text("The borrow checker").count() >= 2  # before, after
    page.get_by_label("Temperature").select_option("1.0")
    page.get_by_role("button", name="Continue").click()
    shows(page, "Drawn, with seed 0.")
    kept(page, "before_and_after")
    page.get_by_label("Prompt").fill("")
    page.get_by_role("button", name="Continue").click()
    assert shows(page, "the prompt is empty").get_attribute("role") == "alert"


def test_memory_explorer(demo):
    page, _, _ = demo
    section(page, "4. What fits a card?")
    shows(page, "Does not fit RTX 4060 8GB")
    page.get_by_label("Strategy").nth(2).select_option("last_layers")
    words = shows(page, "Fits RTX 4060 8GB").inner_text()
    assert page.get_by_alt_text(words).is_visible()
    page.get_by_label("Card").select_option("RTX 3060 12GB")
    shows(page, "Fits RTX 3060 12GB")
    kept(page, "memory_explorer")


def test_ladder_player(demo):
    page, _, _ = demo
    section(page, "5. Out of memory")
    assert page.get_by_role("button", name="Back").is_disabled()
    page.get_by_role("button", name="Next attempt").click()
    shows(page, "Attempt 1 of 6, as planned: failed in the forward pass")
    page.get_by_role("button", name="Next attempt").click()
    shows(page, "Attempt 2 of 6, chunked loss")
    page.get_by_role("button", name="Back").click()
    shows(page, "Attempt 1 of 6")
    kept(page, "ladder_player")


def test_the_demo_has_no_errors_asks_no_other_server_and_wants_its_token(demo, browser):
    page, wrong, port = demo
    assert wrong == []
    stranger = browser.new_context().new_page()
    stranger.goto(f"http://localhost:{port}/")
    assert "login" in stranger.url
    assert not page.locator(".jp-InputArea-editor, .CodeMirror").count(), "no code is shown, and none can be entered"


def test_a_lesson_in_jupyterlab(browser, tmp_path):
    """Open it, run all its cells, answer its quiz."""
    port = free_port()
    for name in ("01_setup_and_devices.ipynb", "01_setup_and_devices.py"):
        shutil.copy(ROOT / "notebooks" / name, tmp_path / name)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    with served(command, f"http://localhost:{port}", tmp_path):
        page, wrong = opened(
            browser, f"http://localhost:{port}/lab/tree/01_setup_and_devices.ipynb?token={TOKEN}&reset"
        )
        shows(page, "| Idle")  # the kernel is there
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        shows(page, "| Busy")
        shows(page, "| Idle")
        shows(page, "✗ not yet")  # the last exercise; JupyterLab draws only what is in sight
        choice = page.get_by_role("button", name="a", exact=True)
        choice.wait_for(state="attached")
        choice.evaluate("place => place.scrollIntoView()")
        choice.click()
        page.locator("strong", has_text="quiz01").wait_for()  # the verdict
        kept(page, "quiz")
        assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert wrong == []
        page.close()
