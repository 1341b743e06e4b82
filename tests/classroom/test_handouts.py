"""Slides and bare code are made from the lessons, and need nothing from elsewhere."""

import ast
import os
import re
import shutil

import pytest

import tlkit
import tlkit.classroom.handouts as handouts
from tlkit.classroom.notebooks import lessons
from tlkit.cli import main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handouts")
    assert main(["handouts", "--output", str(folder)]) == 0
    return folder


def test_slides_and_code_of_every_lesson(handed_out):
    assert len([*handed_out.glob("slides/*.html"), *handed_out.glob("code/*.py")]) == 2 * len(lessons())
    for lesson in lessons():
        page = (handed_out / "slides" / f"{lesson.stem}.html").read_text(encoding="utf-8")
        assert page.count("<section>") > 8, "headings begin slides"
        linked = re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="([^"]+)"', page)
        for target in linked:
            assert target.startswith("data:") or (handed_out / "slides" / target).is_file(), target
        assert "mathjax/tex-svg.js" in linked, "formulas are drawn"
        assert "from 'https:" not in page, "no module from another server"
        style = (handed_out / "slides" / "reveal" / "dist" / "theme" / "white.css").read_text(encoding="utf-8")
        assert "http" not in "".join(re.findall(r"@import[^;]+;", style))
        code = (handed_out / "code" / f"{lesson.stem}.py").read_text(encoding="utf-8")
        ast.parse(code)
        assert "import tlkit as tl" in code and "[markdown]" not in code and "tl.check(" not in code
        assert not any(f"tl.{name}" in code for name in tlkit._WHERE["classroom.widgets"]), "panels are the reader's"


def test_formulas_are_drawn_without_another_server(handed_out):
    if CHROMIUM is None:
        message = "no Chromium here: install it (apt-get install chromium), this test drives it"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    from playwright.sync_api import sync_playwright

    page_of = handed_out / "slides" / "12_memory_anatomy.html"
    asked, wrong = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(page_of.as_uri())
        page.wait_for_function("window.MathJax?.startup?.promise", timeout=90_000)
        page.evaluate("MathJax.startup.promise")
        drawn = page.locator("mjx-container svg").count()
        left = page.evaluate(
            "[...document.querySelectorAll('.jp-RenderedMarkdown p')].map(p => p.textContent)"
            ".filter(text => /\\$[^$]+\\$/.test(text))"
        )
        refused = page.locator("[data-mjx-error], mjx-merror").count()
        browser.close()
    assert drawn > 10 and left == [] and refused == 0 and wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.parametrize("absent, said", [("sphinx_revealjs", "reveal.js"), ("sphinx-mathjax-offline", "MathJax")])
def test_without_what_the_slides_need_the_way_on_is_said(monkeypatch, capsys, tmp_path, absent, said):
    find = handouts.importlib.util.find_spec
    monkeypatch.setattr(handouts.importlib.util, "find_spec", lambda name: None if name == absent else find(name))
    assert main(["handouts", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"need {said}" in told and "[book]" in told
