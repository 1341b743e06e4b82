"""A lesson in JupyterLab, in a real browser. Screenshots are kept in `results/screenshots`."""

import shutil
import sys

import pytest
from served_pages import ROOT, TOKEN, kept, opened, served, shows

from course.lesson19.desk import free_port

pytestmark = pytest.mark.browser


def test_a_lesson_in_jupyterlab(browser, tmp_path):
    """Open it, run all its cells, answer its quiz."""
    port = free_port()
    for name in ("17_leaderboard.ipynb", "17_leaderboard.py"):  # trains nothing
        shutil.copy(ROOT / "notebooks" / name, tmp_path / name)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    with served(command, f"http://localhost:{port}", tmp_path, PYTHONPATH=str(ROOT / "notebooks")):
        page, wrong = opened(browser, f"http://localhost:{port}/lab/tree/17_leaderboard.ipynb?token={TOKEN}&reset")
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
        page.locator("strong", has_text="quiz17").wait_for()  # the verdict
        kept(page, "quiz")
        assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        assert wrong == []
        page.close()
