"""A student's desk in a real JupyterLab: guess, run, be judged, save, and find all of it again.

All tests share one server, on a folder under git: what was only opened, run or saved leaves no trace there.
"""

import shutil
import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from served_pages import PATIENCE, ROOT, TOKEN, free_port, kept, opened, served, shows

from tlkit.classroom.desk import copy_lessons, serving
from tlkit.classroom.originals import unanswered

LESSON = "05_freeze_lower_layers"
DESK = [
    "import tlkit as tl\n\ntl.setup();",
    'tl.predict("p05_1")',
    'tl.predict("p05_2")',
    'tl.outcome("p05_1", 88)',
    'tl.outcome("p05_2", "freeze_lower")',
    'tl.quiz("quiz05")',
    'tl.check("ex05_1", 3)',
    'print(tl.hint("ex05_1", 9))\ntl.check("ex05_7", 3)',
    (
        "from tlkit.jobs import Job\n\nwith Job() as job, job.part('training') as part:\n"
        "    part.step(5, 9, 'step 5 of 9')\n    part.ended('9 steps, loss from 4.91 to 3.87')"
    ),
    "tl.strategy_map()",
]
HIGH = {"width": 1280, "height": 2900}  # JupyterLab draws only what is in sight


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A course under git, of the index and one lesson, with the student's copies beside it."""
    folder = tmp_path_factory.mktemp("course")
    lessons, copies = folder / "notebooks", folder / "my_lessons"
    shutil.copytree(ROOT / "notebooks" / "images", lessons / "images")
    shutil.copytree(ROOT / "notebooks" / "share", lessons / "share")
    for stem in ("00_index", LESSON):
        for ending in ("py", "ipynb"):
            shutil.copy(ROOT / "notebooks" / f"{stem}.{ending}", lessons)
    for name in ("jupytext.toml", "glossary.md"):
        shutil.copy(ROOT / "notebooks" / name, lessons)
    shutil.copy(ROOT / ".gitignore", folder)
    copy_lessons(copies, lessons)
    desk = new_notebook(cells=[new_markdown_cell("# The desk"), *map(new_code_cell, DESK)])
    (copies / "desk.ipynb").write_text(unanswered(nbformat.writes(desk)), encoding="utf-8")
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "the course")
    return folder


@pytest.fixture(scope="module")
def lab(browser, folder):
    """Open a notebook of the course: a page, and what goes wrong on it."""
    port, pages = free_port(), []
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    here = {"PYTHONPATH": str(ROOT), "TLKIT_PROGRESS": str(folder.with_name("progress.jsonl"))}

    def open_notebook(path: str):
        page, wrong = opened(browser, f"http://localhost:{port}/lab/tree/{path}?token={TOKEN}&reset")
        pages.append(page)
        page.set_viewport_size(HIGH)
        shows(page, "| Idle")
        return page, wrong

    with served(command, f"http://localhost:{port}", folder, **here, **serving(folder / "notebooks")):
        yield open_notebook
        for page in pages:
            page.close()


@pytest.fixture(scope="module")
def desk(lab):
    """The desk after a student has worked at it: the guesses before their results, then everything else."""
    page, wrong = lab("my_lessons/desk.ipynb")
    page.locator(".jp-Cell").first.click()
    for _ in range(4):
        page.keyboard.press("Shift+Enter")
    field = page.get_by_label("Your guess (%)")
    field.fill("70")
    field.press("Enter")
    shows(page, "Your guess is 70%.")
    page.get_by_role("button", name="full", exact=True).click()
    shows(page, "Your guess is “full”.")
    menu(page, "Run", "Run Selected Cell and All Below")
    page.get_by_label("embedding: 786,432 of 786,432 values trained").wait_for()
    page.get_by_role("button", name="d", exact=True).click()
    verdict(page, "quiz05", "✓ right").wait_for()
    yield page, wrong
    page.close()


def git(folder, *words):
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def menu(page, name, item):
    page.get_by_role("menuitem", name=name, exact=True).click()
    page.get_by_role("menuitem", name=item, exact=True).click()


def verdict(page, name, word):
    return page.locator("div[role=status]", has=page.get_by_text(name, exact=False)).filter(has_text=word).first


def save(page, file):
    """Save, and wait until the server says that it has written."""
    before = file.stat().st_mtime_ns
    with page.expect_response(lambda answer: answer.request.method == "PUT" and "/api/contents/" in answer.url):
        page.keyboard.press("Control+s")
    until(page, lambda: not unsaved(page))
    assert file.stat().st_mtime_ns != before


def until(page, holds):
    """Wait until something holds that is not seen on the page."""
    for _ in range(PATIENCE // 100):
        if holds():
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"it still did not hold after {PATIENCE / 1000:.0f} s")


def unsaved(page):
    return page.locator(".lm-TabBar-tab.jp-mod-dirty").count()


@pytest.mark.parametrize("path", [f"notebooks/{LESSON}", "notebooks/00_index", f"my_lessons/{LESSON}"])
def test_opening_and_saving_changes_nothing(lab, folder, path):
    page, wrong = lab(f"{path}.ipynb")
    page.locator(".jp-Notebook h1").first.wait_for()
    assert unsaved(page) == 0, "no mark of something unsaved"
    file = folder / f"{path}.ipynb"
    before = file.read_bytes()
    save(page, file)
    assert git(folder, "status", "--short") == "" and file.read_bytes() == before and wrong == []
    assert not (folder / "my_lessons" / f"{LESSON}.py").exists(), "a copy gets no script of its own"


def test_a_guess_and_the_result_stand_side_by_side(desk):
    page, wrong = desk
    typed, chosen = page.locator(".tlkit-outcome").all()
    assert typed.get_by_text("↔ apart").is_visible() and chosen.get_by_text("↔ apart").is_visible()
    assert typed.get_by_text("You guessed 70%, and it is 88%: 18 points too low.").is_visible()
    mine, result = (typed.get_by_text(words, exact=True) for words in ("your guess", "the result"))
    left, right = (typed.get_by_text(sign, exact=True).bounding_box() for sign in ("○", "●"))
    assert mine.is_visible() and result.is_visible() and left["x"] < right["x"], "70 stands to the left of 88"
    assert chosen.get_by_text("You guessed “full”, and it is “freeze_lower”.").is_visible()
    kept(page, "desk_guesses")
    assert wrong == []


def test_a_card_has_hints_that_open_one_after_the_other_by_key_and_by_click(desk):
    page, wrong = desk
    card = verdict(page, "ex05_1", "✗ not yet")
    first, second = card.get_by_text("A hint", exact=True), card.get_by_text("Hint 2 of")
    assert first.is_visible() and not second.is_visible()
    first.focus()
    page.keyboard.press("Enter")
    second.wait_for()
    second.click()
    assert card.locator("details[open]").count() >= 2
    assert "`" not in card.inner_text() and "**" not in card.inner_text(), "Markdown is drawn, not shown"
    kept(page, "desk_hints")
    assert wrong == []


def test_a_hint_that_is_not_there_and_a_mistyped_name_are_sentences(desk):
    page, wrong = desk
    assert page.get_by_text("and no hint 9.").is_visible()
    assert page.get_by_text("exercise 'ex05_7' is unknown: expected ex05_1, ex05_2, ex05_3, quiz05.").is_visible()
    assert page.locator("[data-mime-type='application/vnd.jupyter.stderr'], [data-mime-type$='.error']").count() == 0
    assert wrong == []


def test_a_notebook_is_whole_when_it_is_opened_again(desk, lab, folder):
    page, wrong = desk
    page.locator(".jp-Cell").first.click()
    page.keyboard.press("Shift+Enter")  # the stills are brought up to date when a cell has run
    page.keyboard.press("Shift+Enter")
    page.locator(".jp-Cell").nth(1).get_by_text("[12]:").wait_for()
    save(page, folder / "my_lessons" / "desk.ipynb")
    menu(page, "Kernel", "Shut Down Kernel")
    address = page.url.split("/lab/")[0]
    until(page, lambda: "desk.ipynb" not in page.request.get(f"{address}/api/sessions?token={TOKEN}").text())
    assert wrong == []
    again, wrong = lab("my_lessons/desk.ipynb")
    for words in ("Your guess (%): 70", "18 points too low", "Your choice: d", "✓ right", "Model: tiny"):
        assert again.locator(".jp-Notebook").get_by_text(words).first.is_visible(), words
    assert again.get_by_text("training: 9 steps, loss from 4.91 to 3.87; took 0 s").is_visible()
    assert again.get_by_label("embedding: 786,432 of 786,432 values trained").is_visible()
    inside = again.locator(".jp-Notebook").inner_text()
    assert not any(words in inside for words in ("Error displaying", "VBox(", "HBox(", "Loading widget"))
    kept(again, "desk_reopened")
    assert unsaved(again) == 0 and wrong == []
    assert git(folder, "status", "--short") == "", "running and saving a copy is nobody's business but the student's"


def test_the_index_says_where_one_was(desk, lab):
    """The answer to the quiz was kept by another kernel."""
    page, wrong = lab("my_lessons/00_index.ipynb")
    menu(page, "Run", "Run All Cells")
    shows(page, "Your last answer was to quiz05")
    assert page.get_by_text("In lesson 5 (Freeze the lower layers) this is open").is_visible()
    kept(page, "desk_index")
    assert wrong == []
