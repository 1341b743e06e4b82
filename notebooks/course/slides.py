"""The lessons as slides, cut by nbconvert at the `slide_type` of their cells. They ask no network for anything."""

import shutil
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import nbformat
from nbconvert import SlidesExporter

from course.lessons import FOLDER, lessons

MATHJAX = "mathjax/tex-svg.js"  # one file, which needs no fonts beside it


def write_slides(target: Path, stems: Iterable[str] | None = None, folder: Path = FOLDER) -> list[Path]:
    """Write lessons, as executed, as pages of slides.

    Args:
        target: the folder to write to; made where it is not there. What the pages load is copied beside them.
        stems: the names of their files without the ending; default: all lessons.
        folder: where the lessons are.

    Returns:
        The pages.

    Raises:
        ModuleNotFoundError: where the packages of the extra "book" are not installed.
    """
    for part in ("dist", "plugin/notes"):
        source = files("sphinx_revealjs") / "_static" / "revealjs" / part
        shutil.copytree(source, target / "reveal" / part, dirs_exist_ok=True)
    (target / MATHJAX).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(files("sphinx-mathjax-offline") / "static" / MATHJAX, target / MATHJAX)
    exporter = SlidesExporter(
        template_name="deck",
        extra_template_basedirs=[str(folder / "share" / "nbconvert")],
        reveal_url_prefix="reveal",
        reveal_theme="white",
        embed_images=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    pages = []
    for stem in stems or [lesson.stem for lesson in lessons(folder)]:
        notebook = nbformat.read(folder / f"{stem}.ipynb", as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":  # a slide of its own, unless the author says otherwise
                cell.metadata.setdefault("slideshow", {}).setdefault("slide_type", "subslide")
        page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": stem}})
        pages.append(target / f"{stem}.html")
        pages[-1].write_text(page, encoding="utf-8")
    return pages
