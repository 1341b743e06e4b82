"""The lessons as a web book: `python -m sphinx -M html book results/book -W --keep-going`.

The notebooks are shown as they are stored, never executed; `tests/classroom/test_book.py` checks the pages.
"""

import json
import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

from tlkit.classroom.handouts import MATHJAX, packaged
from tlkit.classroom.stills import VIEW, without_views

BOOK = Path(__file__).resolve().parent
NOTEBOOKS = BOOK.parent / "notebooks"
LESSONS = BOOK / "lessons"
PANEL = "(Here stands a panel with controls, when the lesson is open in JupyterLab.)"

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
    """A notebook with its pictures' words where myst-nb looks for them, and with words for its widgets."""
    without_views(notebook)  # with a stored state, myst-nb would load scripts from another server
    fold_answers(notebook["cells"])
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        alts = [output.get("metadata", {}).get("image/png", {}).get("alt") for output in cell["outputs"]]
        if any(alts):
            cell["metadata"]["mystnb"] = {"image": {"alt": " ".join(filter(None, alts))}}
        cell["outputs"] = [shown for output in cell["outputs"] if (shown := _without_widget(output))]
    return notebook


def fold_answers(cells: list[dict]) -> None:
    """Fold up the code that answers a prediction: the cells between the text, or the question, and the outcome."""
    for place, cell in enumerate(cells):
        if not re.search(r"^tl\.outcome\(", "".join(cell["source"]), re.MULTILINE):
            continue
        for before in reversed(cells[:place]):
            if before["cell_type"] != "code" or "".join(before["source"]).startswith("tl.predict("):
                break
            before["metadata"].setdefault("tags", []).append("hide-cell")


def _without_widget(output: dict) -> dict | None:
    """Of a library's progress bar nothing remains, of a widget without a still a sentence."""
    if VIEW not in output.get("data", {}):
        return output
    if "%|" in "".join(output["data"].get("text/plain", "")):
        return None
    return {"output_type": "display_data", "data": {"text/plain": PANEL}, "metadata": {}}


def copy_lessons(app: Sphinx, config: Config) -> None:
    """Sphinx reads only below its source folder. Copies, not links, because of Windows."""
    shutil.copytree(NOTEBOOKS / "images", LESSONS / "images", dirs_exist_ok=True)
    lessons = {path.name: path for path in NOTEBOOKS.glob("[0-9][0-9]_*.ipynb")}
    for page in ("glossary.md", "instructors.md", "places.md"):
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
    source = packaged("formulas need sphinx-mathjax-offline", "sphinx-mathjax-offline", f"static/{MATHJAX}")
    if failure is None and app.builder.format == "html":
        target = Path(app.outdir) / "_static" / mathjax_path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", copy_lessons)
    app.connect("build-finished", copy_mathjax)
