"""For the one who teaches: lessons as slides, and as bare code to type along, without a network in the room."""

import importlib.util
import re
import shutil
from pathlib import Path
from string import Template

import jupytext
import nbformat

import tlkit as tl
from tlkit.classroom.notebooks import FOLDER, lessons
from tlkit.classroom.slides import deck, slides_of
from tlkit.jobs import Job

READERS = ("## Your experiment", "## Exercises")  # from the first of these on, the code is the reader's
MATHJAX = "mathjax/tex-svg.js"  # one file, which needs no fonts beside it


def write_slides(target: Path, folder: Path = FOLDER) -> list[Path]:
    """Write every lesson, as executed, as slides with notes for who presents (key S); the rest is copied beside them.

    Args:
        target: the folder to write to; made where it is not there.
        folder: where the executed lessons are.

    Returns:
        The pages.

    Raises:
        ModuleNotFoundError: where reveal.js or MathJax is not installed; they come with sphinx-revealjs and
            sphinx-mathjax-offline.
    """
    reveal = packaged("the slides need reveal.js", "sphinx_revealjs", "_static/revealjs")
    mathjax = packaged("the slides need MathJax", "sphinx-mathjax-offline", f"static/{MATHJAX}")
    (target / MATHJAX).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(mathjax, target / MATHJAX)
    for part in ("dist", "plugin/notes"):
        shutil.copytree(reveal / part, target / "reveal" / part, dirs_exist_ok=True)
    template = Template((folder / "share" / "deck.html").read_text(encoding="utf-8"))
    pages, found = [], lessons(folder)
    with Job(len(found), "lesson") as job:
        for lesson in found:
            with job.part(lesson.stem):
                slides = slides_of(nbformat.read(folder / f"{lesson.stem}.ipynb", as_version=4))
            pages.append(target / f"{lesson.stem}.html")
            pages[-1].write_text(deck(lesson.stem, slides, template), encoding="utf-8")
    return pages


def write_code_only(target: Path, folder: Path = FOLDER) -> list[Path]:
    """Write the code of every lesson without its text: to type live, or to run as a script.

    Experiments, exercises and panels are left out: they are the reader's.

    Args:
        target: the folder to write to; made where it is not there.
        folder: where the lessons are.

    Returns:
        The files.
    """
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for lesson in lessons(folder):
        notebook = jupytext.read(folder / f"{lesson.stem}.py")
        begins = [n for n, cell in enumerate(notebook.cells) if cell.source.startswith(READERS)]
        cells = notebook.cells[: begins[0] if begins else None]
        code = [cell.source for cell in cells if cell.cell_type == "code" and not _shows_a_panel(cell.source)]
        bare = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in code])
        bare.metadata["jupytext"] = {"notebook_metadata_filter": "-all"}
        files.append(target / f"{lesson.stem}.py")
        files[-1].write_text(jupytext.writes(bare, "py:percent"), encoding="utf-8")
    return files


def packaged(need: str, package: str, place: str) -> Path:
    """Find what a package brings for the browser.

    Args:
        need: what needs what, for the message.
        package: its name, as it is imported.
        place: of the file or folder, below the package.

    Raises:
        ModuleNotFoundError: where the package is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None:
        raise ModuleNotFoundError(f'{need}: python -m pip install -e ".[book]"')
    return Path(found.origin).parent / place


def _shows_a_panel(source: str) -> bool:
    """Whether a cell is the reader's: it shows a panel, or asks for a guess or compares it."""
    names = re.findall(r"\btl\.(\w+)", source)
    readers = ("tlkit.classroom.widgets", "tlkit.classroom.guesses")
    return any(getattr(getattr(tl, name), "__module__", "") in readers for name in names)
