"""The lessons as a web book: `python -m sphinx -M html book results/book -W --keep-going`.

The notebooks are shown as they are stored, never executed; `tests/course/test_book.py` checks the pages.
"""

import json
import shutil
import sys
from importlib.resources import files
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

BOOK = Path(__file__).resolve().parent
NOTEBOOKS = BOOK.parent / "notebooks"
LESSONS = BOOK / "lessons"
sys.path.insert(0, str(NOTEBOOKS))

from course.slides import MATHJAX  # noqa: E402

project = "Transfer learning, hands on"
author = "the workbook's authors"
copyright = f"2026 {author}; text CC BY 4.0, code MIT"

extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_dmath_allow_digits = False  # "5$ and 10$" are prices
myst_dmath_allow_space = False
mathjax_path = MATHJAX  # one file without fonts, from the site itself: see `copy_mathjax`
myst_heading_anchors = 3

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["book.css"]
html_use_index = False
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is; unset, the theme logs an error
html_theme_options = {
    "navbar_persistent": [],  # the search field stands in the sidebar
    "use_fullscreen_button": False,
}


def for_page(notebook: dict) -> dict:
    """A notebook with the words of its pictures where myst-nb looks for them."""
    for cell in notebook["cells"]:
        outputs = cell.get("outputs", [])
        words = [output.get("metadata", {}).get("image/png", {}).get("alt") for output in outputs]
        if any(words):
            cell["metadata"]["mystnb"] = {"image": {"alt": " ".join(filter(None, words))}}
    return notebook


def copy_lessons(app: Sphinx, config: Config) -> None:
    """Sphinx reads only below its source folder. Copies, not links, because of Windows."""
    shutil.copytree(NOTEBOOKS / "images", LESSONS / "images", dirs_exist_ok=True)
    lessons = {path.name: path for path in NOTEBOOKS.glob("[0-9A][0-9]_*.ipynb")}
    for page in ("glossary.md", "instructors.md"):
        shutil.copy2(NOTEBOOKS / page, LESSONS / page)
    for copy in LESSONS.glob("*.ipynb"):
        if copy.name not in lessons:
            copy.unlink()
    for name, path in lessons.items():
        page = json.dumps(for_page(json.loads(path.read_text("utf-8"))), ensure_ascii=False)
        copy = LESSONS / name
        if not copy.exists() or copy.read_text("utf-8") != page:  # Sphinx reads again what is newer
            copy.write_text(page, "utf-8")


def copy_mathjax(app: Sphinx, failure: Exception | None) -> None:
    """Of the 24 MB that sphinx-mathjax-offline brings, the one file that draws formulas; no other server is asked."""
    source = files("sphinx-mathjax-offline") / "static" / MATHJAX
    if failure is None and app.builder.format == "html":
        target = Path(app.outdir) / "_static" / mathjax_path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", copy_lessons)
    app.connect("build-finished", copy_mathjax)
