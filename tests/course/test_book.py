"""The web book: it builds without a warning, every link leads somewhere, and it needs no other server."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parents[2]
LESSONS = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9A][0-9]_*.ipynb"))]
PAGES = [*LESSONS, "glossary", "instructors"]
# A page of its own, so that the test does not depend on what lessons have in them.
FORMULAS = """---
orphan: true
---

# Formulas

$$
h = W x + \\frac{\\alpha}{r} B A x
$$

With $r = 8$ it costs 5$ to 10$, or $5 to $10.

And `$env:NAME` or `$HOME` is code.

\\begin{equation}
a = b
\\end{equation}
"""
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages, from copies: a build elsewhere in this checkout is not disturbed."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "book", folder / "book", ignore=shutil.ignore_patterns("lessons"))
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    (folder / "book" / "formulas.md").write_text(FORMULAS, "utf-8")
    command = [sys.executable, "-m", "sphinx", "-M", "html", "book", "out", "-W", "--keep-going", "-q"]
    closed = "http://127.0.0.1:9"  # nothing listens there: whatever is fetched during the build fails
    offline = os.environ | {"HTTP_PROXY": closed, "HTTPS_PROXY": closed}
    build = subprocess.run(command, cwd=folder, env=offline, capture_output=True, text=True, encoding="utf-8")
    assert build.returncode == 0, build.stderr
    return folder / "out" / "html"


@pytest.fixture(scope="module")
def pages(site):
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]  # there: the theme's parts
    paths.remove(site / "formulas.html")
    return {path: BeautifulSoup(path.read_text("utf-8"), "html.parser") for path in paths}


def test_every_lesson_is_a_page_in_the_navigation_of_every_page(site, pages):
    expected = [site / "lessons" / f"{page}.html" for page in PAGES]
    assert len(LESSONS) > 10 and set(expected) <= set(pages)
    for path, page in pages.items():
        links = [link["href"].partition("#")[0] for link in page.select("nav.bd-links a")]
        assert [(path.parent / link).resolve() if link else path for link in links] == expected, path.name


def test_every_internal_link_and_anchor_leads_somewhere(site, pages):
    anchors = {path: {tag["id"] for tag in page.find_all(id=True)} for path, page in pages.items()}
    broken = []
    for path, page in pages.items():
        for tag in page.find_all(lambda tag: tag.has_attr("href") or tag.has_attr("src")):
            link = urlsplit(tag.get("href") or tag.get("src") or "")
            if link.scheme or link.netloc:
                continue
            target = (path.parent / unquote(link.path)).resolve() if link.path else path
            inside = target.is_relative_to(site.resolve()) and target.is_file()
            if not inside or (link.fragment and unquote(link.fragment) not in anchors[target]):
                broken.append((path.name, link.geturl()))
    assert broken == []


def test_what_was_recorded_is_shown(site, pages):
    for lesson in LESSONS:
        page = pages[site / "lessons" / f"{lesson}.html"]
        words = " ".join(page.get_text().split())
        notebook = json.loads((site.parents[1] / "notebooks" / f"{lesson}.ipynb").read_text("utf-8"))
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
        printed = [" ".join("".join(output["text"]).split()) for output in outputs if "text" in output]
        assert [text for text in printed if text not in words] == [], lesson
        assert not re.search(r"[VH]Box\(|Error displaying", words), lesson
        charts = sum("image/png" in output.get("data", {}) for output in outputs)
        charts += sum("".join(output.get("data", {}).get("text/html", "")).count("<img ") for output in outputs)
        assert len(page.select(".cell_output img")) == charts, lesson


def test_every_picture_has_alternative_text(pages):
    silent = []
    for path, page in pages.items():
        for picture in page.find_all("img"):
            words = picture.get("alt", "")
            if len(words.split()) < 4:  # without any, Sphinx writes the name of the file
                silent.append((path.name, words))
    assert silent == []


def test_no_page_loads_anything_from_another_server(site, pages):
    for path, page in pages.items():
        for name, attribute in LOADED.items():
            for tag in page.find_all(name):
                link = urlsplit(tag.get(attribute) or "")
                assert link.scheme in ("", "data") and not link.netloc, (path.name, str(tag))
        for script in page.find_all("script", src=False):
            assert re.search("https?://", script.string or "") is None, (path.name, script.string)
        assert "application/vnd.jupyter" not in str(page), path.name
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text("utf-8")) == [], sheet.name


def test_a_page_with_a_formula_loads_mathjax_from_this_site(site):
    page = BeautifulSoup((site / "formulas.html").read_text("utf-8"), "html.parser")
    formulas = " ".join(" ".join(formula.get_text().split()) for formula in page.select(".math"))
    for formula in (
        r"\[h = W x + \frac{\alpha}{r} B A x\]",
        r"\(r = 8\)",
        r"\[\begin{equation} a = b \end{equation}\]",
    ):
        assert formula in formulas
    assert "10" not in formulas  # a price
    assert "it costs 5$ to 10$, or $5 to $10." in page.get_text() and "$env:NAME or $HOME is" in page.get_text()
    scripts = [tag["src"] for tag in page.find_all("script", src=True) if "mathjax" in tag["src"].lower()]
    assert [urlsplit(script).path for script in scripts] == ["_static/mathjax/tex-svg.js"]
    assert urlsplit(scripts[0]).netloc == "" and (site / urlsplit(scripts[0]).path).stat().st_size > 1_000_000


def test_no_solution_is_published(site, pages):
    published = [path for path in site.rglob("*") if path.is_file()]
    assert len(published) > len(LESSONS)
    assert [path.name for path in published if b"### BEGIN SOLUTION" in path.read_bytes()] == []
    assert [path.name for path in published if "solutions" in path.parts] == []
    for solution in sorted((ROOT / "notebooks" / "solutions").glob("*.py")):
        shown = " ".join(pages[site / "lessons" / f"{solution.stem}.html"].get_text().split())
        bodies = re.findall("### BEGIN SOLUTION(.*?)### END SOLUTION", solution.read_text("utf-8"), re.DOTALL)
        assert bodies and [body for body in bodies if " ".join(body.split()) in shown] == [], solution.name
