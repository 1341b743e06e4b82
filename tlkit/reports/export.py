"""A comparison as files: CSV, JSON, Markdown, self-contained HTML, and its charts as PNG and SVG."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from tlkit.evidence.comparison import Comparison
from tlkit.files import hold_folder, write_atomically, write_text_atomically
from tlkit.reports.charts import CHARTS
from tlkit.reports.conclusions import conclusions
from tlkit.reports.page import comparison_page
from tlkit.reports.tables import NAMED_BY_WORDS, as_markdown, brief, notes_on, rows_of

DPI = 300  # of a PNG file: what a journal asks for
TABLES = ("runs", "documents", "answers", "written", "pairs", "attempts")  # each in a file beside the comparison's
NOT_ALWAYS = ("written", "attempts")  # only some tasks and comparisons have these
IN_JSON = ("comparison", "runs", "pairs")


def export(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write every table and chart into a folder, each with its provenance.

    Args:
        comparison: what `compare` returned.
        folder: is made where there is none.

    Returns:
        The paths written, in order.

    Raises:
        OSError: where the folder cannot be written.
    """
    folder = Path(folder)
    with hold_folder(folder, patience=60):  # another process may have shared the runs, and writes the same
        return sorted(_written(comparison, folder))


def _written(comparison: Comparison, folder: Path) -> Iterator[Path]:
    made = {key: _in_words(value) for key, value in comparison.provenance.items()}
    provenance = "\n".join(f"- {key}: {value}" for key, value in made.items())
    comment = "".join(f"# {line}\n" for line in provenance.splitlines())
    failed = [f"FAILED {name}: {text.splitlines()[-1]}" for name, text in comparison.failures.items()]
    notes = "".join(f"\n{line}\n" for line in [*failed, *notes_on(comparison.table)])
    short = brief(comparison.table)
    drawn = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.curves) else {}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    tables = {"comparison": comparison.table, "summary": short} | {name: getattr(comparison, name) for name in TABLES}
    content = {"provenance": comparison.provenance, "failures": comparison.failures}
    content |= {"table" if name == "comparison" else name: rows_of(tables[name]) for name in IN_JSON}
    markdown = f"# Comparison\n\n{conclusions(comparison)}\n\n{as_markdown(comparison.table)}\n{notes}\n{provenance}\n"
    texts = {
        "comparison.json": json.dumps(content, indent=2),
        "comparison.md": markdown,
        "comparison.html": comparison_page(comparison, figures, made),
        "summary.tex": comment.replace("#", "%") + _latex(short),
    }
    tables = {name: table for name, table in tables.items() if len(table) or name not in NOT_ALWAYS}
    texts |= {f"{name}.csv": comment + table.to_csv(index=False) for name, table in tables.items()}
    for name, text in texts.items():
        write_text_atomically(folder / name, text)
        yield folder / name
    for name, figure in figures.items():
        for kind, key in (("png", "Description"), ("svg", "Title")):
            save = partial(figure.savefig, format=kind, dpi=DPI, metadata={key: provenance})
            write_atomically(folder / f"{name}.{kind}", save)
            yield folder / f"{name}.{kind}"


def _latex(table: pd.DataFrame) -> str:
    """A table for LaTeX with the package booktabs."""
    sides = "".join("l" if name in NAMED_BY_WORDS else "r" for name in table)
    return table.to_latex(index=False, escape=True, column_format=sides)


def _in_words(value: object) -> str:
    return "; ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)
