"""Slides and bare code are made from the lessons, and need nothing from elsewhere."""

import ast
import re
from string import Template

import nbformat
import pandas as pd
import pytest

import tlkit
import tlkit.classroom.handouts as handouts
from tlkit.classroom.notebooks import lessons
from tlkit.classroom.slides import Slide, deck, slides_of
from tlkit.cli import main


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("handouts")
    assert main(["handouts", "--output", str(folder)]) == 0
    return folder


def test_slides_and_code_of_every_lesson(handed_out):
    assert len([*handed_out.glob("slides/*.html"), *handed_out.glob("code/*.py")]) == 2 * len(lessons())
    for lesson in lessons():
        page = (handed_out / "slides" / f"{lesson.stem}.html").read_text(encoding="utf-8")
        assert page.count("<section ") > 15 and page.count('<aside class="notes">') > 8
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


# For each slide what passes the edge or is too small to be read from the last row.
MEASURE = """() => {
  const found = [], slides = [...document.querySelectorAll(".slides > section")];
  slides.forEach((slide, number) => {
    Reveal.slide(number);
    for (const part of slide.querySelectorAll(":scope *:not(aside, aside *)")) {
      const box = part.getBoundingClientRect(), inside = part.closest("mjx-container");
      if (!box.width || !box.height) continue;
      const words = [...part.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
      const hidden = part.tagName === "PRE" && part.scrollWidth > part.clientWidth + 1;
      const small = words && !inside && parseFloat(getComputedStyle(part).fontSize) < 24;
      if (box.right > 1280 || box.bottom > 720 || box.left < 0 || box.top < 0 || hidden || small) {
        found.push(`slide ${number + 1}, ${part.tagName}: ${slide.innerText.slice(0, 80)}`);
        break;
      }
    }
  });
  return [slides.length, found];
}"""


@pytest.fixture(scope="module")
def page(browser):
    return browser.new_page(viewport={"width": 1280, "height": 720})


def drawn(page, path):
    """Open slides, and wait until their formulas are drawn."""
    page.goto(path.as_uri())
    page.wait_for_function("window.MathJax?.startup?.promise", timeout=90_000)
    page.evaluate("MathJax.startup.promise")


def test_nothing_on_any_slide_passes_the_edge_or_is_too_small(handed_out, page):
    wrong, total = [], 0
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    for lesson in lessons():
        drawn(page, handed_out / "slides" / f"{lesson.stem}.html")
        count, found = page.evaluate(MEASURE)
        wrong += [f"{lesson.stem}, {one}" for one in found]
        total += count
    assert total > 500 and wrong == []


def test_a_slide_that_is_too_full_is_found(tmp_path, handed_out, page):
    """The measure itself: one line too many, one too wide, and letters too small."""
    faults = {
        "tall": "<ul>" + "<li>one more</li>" * 30 + "</ul>",
        "wide": f"<pre>{'x' * 200}</pre>",
        "small": '<p style="font-size: 12px">not for the last row</p>',
        "good": "<p>One sentence.</p>",
    }
    template = Template((handouts.FOLDER / "share" / "deck.html").read_text(encoding="utf-8"))
    slides = [Slide("A section", body, "text") for body in faults.values()]
    (handed_out / "slides" / "planted.html").write_text(deck("planted", slides, template), encoding="utf-8")
    drawn(page, handed_out / "slides" / "planted.html")
    _, found = page.evaluate(MEASURE)
    assert [line.split(",")[0] for line in found] == ["slide 1", "slide 2", "slide 3"]


def test_formulas_are_drawn_without_another_server(handed_out, page):
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    drawn(page, handed_out / "slides" / "12_memory_anatomy.html")
    left = page.evaluate(
        "[...document.querySelectorAll('.slides p')].filter(p => /\\$[^$]+\\$/.test(p.textContent)).length"
    )
    refused = page.locator("[data-mjx-error], mjx-merror").count()
    assert page.locator("mjx-container svg").count() > 10 and left == 0 and refused == 0 and wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def cut(*cells) -> list[Slide]:
    return slides_of(nbformat.v4.new_notebook(cells=list(cells)))


def markdown(text: str):
    return nbformat.v4.new_markdown_cell(text)


def code(text: str, *outputs):
    return nbformat.v4.new_code_cell(text, outputs=list(outputs))


def test_of_a_text_the_first_sentence_stands_on_the_slide_and_all_of_it_in_the_notes():
    first, second, third, last = cut(
        markdown("# 1 · Title\n\n*A question?*"),
        markdown("## A section\n\nOne idea of [lesson 2](x.ipynb), e.g. `this`. More of it. **Not here.**"),
        markdown("**Predict first.** How much? Guess. Then run.\n\nA formula:\n\n$$a_1 < b$$"),
        markdown("## Exercises\n\nNot on a slide."),
    )
    assert first.kind == "title" and "<em>A question?</em>" in first.body
    assert second.body == "<p>One idea of lesson 2, e.g. <code>this</code>.</p>" and second.heading == "A section"
    assert "More of it." in second.notes and "Not here" not in second.body
    assert "How much? Guess." in third.body and "Then run" not in third.body and "Then run" in third.notes
    assert last.body == "<p>A formula:</p><div>$$a_1 &lt; b$$</div>"


def test_of_code_imports_assertions_and_long_cells_are_left_out():
    stream = nbformat.v4.new_output("stream", name="stdout", text="\n".join(f"line {n}" for n in range(20)))
    short, *outputs = cut(code("import os\nassert os\ntl.claim('so', True)\nx = 1  # one\nprint(x)", stream))
    shown = re.sub("<[^>]+>", "", short.body)
    assert "x = 1  # one" in shown and not any(word in shown for word in ("import", "assert", "claim"))
    assert [slide.kind for slide in outputs] == ["output", "output"] and "import os" in short.notes
    said = nbformat.v4.new_output("stream", name="stdout", text="✓ It is so\n✗ It is not")
    (found,) = cut(code("y = 1\ntl.claim('It is so', y)", said))
    assert found.kind == "found" and found.body == "<ul><li>✓ It is so</li><li>✗ It is not</li></ul>"
    few = nbformat.v4.new_output("stream", name="stdout", text="one line")
    (both,) = cut(code("print('one line')", few))
    assert both.kind == "code" and "<pre>one line</pre>" in both.body
    assert cut(code("import os\nassert os")) == []
    (long,) = cut(code("\n".join(f"x{n} = {n}" for n in range(11)), nbformat.v4.new_output("stream", text="found")))
    assert long.kind == "output" and "x10 = 10" in long.notes


def test_a_large_table_is_cut_into_slides_that_repeat_its_first_column():
    frame = pd.DataFrame({"name": [f"row {n}" for n in range(10)]} | {f"column {n}": 123456.5 for n in range(12)})
    output = nbformat.v4.new_output("execute_result", data={"text/html": frame.to_html(), "text/plain": ""})
    slides = cut(code("frame", output))[1:]
    assert {slide.kind for slide in slides} == {"table"} and len(slides) > 3
    assert all("<td>row 0</td>" in slide.body or "<td>row 9</td>" in slide.body for slide in slides)
    assert all(sum(f"column {n}<" in slide.body for slide in slides) == 2 for n in range(12))


@pytest.mark.parametrize("absent, said", [("sphinx_revealjs", "reveal.js"), ("sphinx-mathjax-offline", "MathJax")])
def test_without_what_the_slides_need_the_way_on_is_said(monkeypatch, capsys, tmp_path, absent, said):
    find = handouts.importlib.util.find_spec
    monkeypatch.setattr(handouts.importlib.util, "find_spec", lambda name: None if name == absent else find(name))
    assert main(["handouts", "--output", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"need {said}" in told and "[book]" in told
