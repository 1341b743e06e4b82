"""The edition for students in JupyterLab, as one who has just unpacked it: answer, save, bring the lesson back."""

import json
import os
import subprocess
import sys
import zipfile

import pandas as pd
import pytest
from served_pages import TOKEN, free_port, kept, opened, served, shows

from tlkit.classroom.exercises import find
from tlkit.classroom.grading.feedback import write_feedback
from tlkit.classroom.student import NAME, write_student_edition
from tlkit.classroom.study.reading import read_study
from tlkit.classroom.study.report import write_up
from tlkit.settings import DATA

pytestmark = pytest.mark.browser
LESSON = "01_setup_and_devices"
ANSWER = "answer = 387_789 / 151_936"


@pytest.fixture
def edition(tmp_path):
    """Unpacked from its zip file."""
    with zipfile.ZipFile(write_student_edition(tmp_path / "course", zipped=True)) as archive:
        archive.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked" / NAME


def test_a_student_answers_saves_and_brings_the_lesson_back(browser, edition, tmp_path):
    file = edition / "my_lessons" / f"{LESSON}.ipynb"
    original = file.read_bytes()
    own = {
        "PYTHONPATH": str(edition),
        "TLKIT_PROGRESS": str(tmp_path / "home" / "progress.jsonl"),
        "OMP_NUM_THREADS": "2",
    }
    port = free_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [f"--IdentityProvider.token={TOKEN}"]
    with served(command, f"http://localhost:{port}", edition, **own):
        page, wrong = opened(browser, f"http://localhost:{port}/lab/tree/my_lessons/{LESSON}.ipynb?token={TOKEN}&reset")
        shows(page, "| Idle")
        assert page.locator(".jp-OutputArea-output").count() == 0  # nobody has run it
        page.wait_for_timeout(2000)
        assert page.locator(".jp-mod-dirty").count() == 0  # opening it is no change
        cell, stub = _first_exercise(page)
        stub.click()
        page.keyboard.press("Home")
        page.keyboard.press("Shift+End")
        page.keyboard.type(ANSWER)
        imports = page.locator(".jp-CodeCell .cm-content", has_text="import tlkit as tl").last
        imports.click()
        page.keyboard.press("Shift+Enter")
        cell.locator(".cm-content").click()
        page.keyboard.press("Shift+Enter")
        shows(page, "✓ right")
        kept(page, "student_edition")
        page.keyboard.press("Control+s")
        _wait_for(page, lambda: ANSWER in file.read_text(encoding="utf-8"))
        assert not list((edition / "my_lessons").glob("*.py"))  # saving pairs it with nothing

        done = subprocess.run(
            [sys.executable, "-m", "tlkit", "restore", "01"],
            cwd=edition,
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{LESSON}.mine.ipynb" in done.stdout and file.read_bytes() == original
        assert ANSWER in (edition / "my_lessons" / f"{LESSON}.mine.ipynb").read_text(encoding="utf-8")
        page.get_by_role("menuitem", name="File", exact=True).click()
        page.get_by_role("menuitem", name="Reload Notebook from Disk").click()
        page.locator(".jp-CodeCell", has_text=ANSWER).wait_for(state="detached")
        _first_exercise(page)[1].wait_for()
        kept(page, "student_restored")
        assert wrong == []
        page.close()
    answers = [json.loads(line) for line in (tmp_path / "home" / "progress.jsonl").read_text().splitlines()]
    assert [(one["name"], one["right"]) for one in answers] == [("ex01_1", True)]


@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_of_feedback_is_read_with_keys_and_on_a_phone(browser, tmp_path, width):
    marks = [("ex04_1", True, ""), ("ex04_2", False, "its cell stopped with NameError: name 'x' * 40 is not defined")]
    rows = [
        {"notebook": "a.ipynb", "student": "ann", "name": "", "lesson": "04", "exercise": name, "right": right}
        | {"reason": reason, "seconds": 1.0}
        for name, right, reason in marks
    ]
    (file,) = write_feedback(pd.DataFrame(rows), tmp_path)
    page = browser.new_page(viewport={"width": width, "height": 720})
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda asked: None if asked.url.startswith("file:") else wrong.append(asked.url))
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    hint = page.get_by_text(find("ex04_2").hints[0])
    assert not hint.is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    hint.wait_for()
    kept(page, f"feedback_{width}")
    assert wrong == []
    page.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_report_of_a_study_is_read_on_a_screen_and_on_a_phone(browser, tmp_path, width):
    study = read_study(DATA / "studies" / "kitchen")
    *_, file = sorted(write_up(study, tmp_path), key=lambda path: path.suffix == ".html")
    page = browser.new_page(viewport={"width": width, "height": 720})
    wrong = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("request", lambda asked: None if asked.url.startswith(("file:", "data:")) else wrong.append(asked.url))
    page.goto(file.as_uri())
    assert page.locator("h1").inner_text() == study.plan.question
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    picture = page.locator("img").first
    assert picture.get_attribute("alt") and picture.evaluate("image => image.naturalWidth > 500")
    frames = page.locator(".frame").evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    assert len(frames) > 5 and max(frames) <= width, "a wide table scrolls in its frame"
    kept(page, f"study-{width}")
    assert wrong == []
    page.close()


def _first_exercise(page):
    """Its cell, and the line in it that waits for an answer; JupyterLab draws only what is in sight."""
    page.locator(".jp-WindowedPanel-outer").first.evaluate("place => place.scrollTo(0, place.scrollHeight)")
    cell = page.locator(".jp-CodeCell", has_text='tl.check("ex01_1", answer)')
    return cell, cell.locator(".cm-line", has_text="# your code here")


def _wait_for(page, true, seconds=60):
    for _ in range(seconds * 5):
        if true():
            return
        page.wait_for_timeout(200)
    raise AssertionError("it was not saved")
