"""A comparison as files: CSV, JSON, Markdown, LaTeX, self-contained HTML, and its charts as PNG and SVG."""

import html
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from string import Template

import pandas as pd

from tlkit.evidence.comparison import Comparison
from tlkit.files import lock_folder, write_atomically, write_text_atomically
from tlkit.reports.charts import CHARTS
from tlkit.reports.figure import Chart
from tlkit.reports.tables import WORDS, as_markdown, brief, notes_on, readable, rows_of

DPI = 300  # of a PNG file: what a journal asks for
TABLES = ("runs", "documents", "answers", "written", "pairs", "attempts")  # each in a file beside the comparison's
NOT_ALWAYS = ("written", "attempts")  # only some tasks and comparisons have these
TEMPLATE = Path(__file__).with_name("comparison_page.html")
LEGEND = (
    "Perplexity is that of the held-out test documents; lower is better. In brackets and in columns with two figures: "
    "95% intervals, over documents and seeds for differences of two strategies, and corrected for the number of pairs. "
    "A rank is given where these differences allow it; “tied 2-4” leaves the ranks 2, 3 and 4 open."
)


def export(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write every table and chart into a folder, each with its provenance.

    Args:
        folder: is made where there is none.

    Returns:
        The paths written, in order.

    Raises:
        OSError: where the folder cannot be written.
    """
    folder = Path(folder)
    with lock_folder(folder, patience=60):  # another process may have shared the runs, and writes the same
        return sorted(_written(comparison, folder))


def _written(comparison: Comparison, folder: Path) -> Iterator[Path]:
    made = {key: _in_words(value) for key, value in comparison.provenance.items()}
    provenance = "\n".join(f"- {key}: {value}" for key, value in made.items())
    comment = "".join(f"# {line}\n" for line in provenance.splitlines())
    failed = [f"FAILED {name}: {text.splitlines()[-1]}" for name, text in comparison.failures.items()]
    notes, short = [*failed, *notes_on(comparison.table)], brief(comparison.table)
    drawn = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.curves) else {}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    tables = {"comparison": comparison.table, "summary": short} | {name: getattr(comparison, name) for name in TABLES}
    content = {"provenance": comparison.provenance, "failures": comparison.failures}
    content |= {"table": rows_of(comparison.table), "runs": rows_of(comparison.runs)}
    content |= {"pairs": rows_of(comparison.pairs)}
    lines = "".join(f"\n{line}\n" for line in notes)
    sides = "".join("l" if name in WORDS else "r" for name in short)
    texts = {
        "comparison.json": json.dumps(content, indent=2),
        "comparison.md": f"# Comparison\n\n{as_markdown(comparison.table)}\n{lines}\n{provenance}\n",
        "comparison.html": _page(comparison, figures, made, notes),
        "summary.tex": comment.replace("#", "%") + short.to_latex(index=False, escape=True, column_format=sides),
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


def _in_words(value: object) -> str:
    return "; ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def _page(comparison: Comparison, figures: dict[str, Chart], provenance: dict[str, str], notes: list[str]) -> str:
    """A comparison as one web page that needs no other file; text of models, plugins and file names is escaped."""
    made = comparison.provenance
    about = f"{len(comparison.table)} rows, {made['seeds']} seeds, profile {made['profile']}, {made['date']}"
    values = {
        "title": html.escape(f"Comparison of strategies: {made['model']} on {made['corpus']}"),
        "about": html.escape(about),
        "notes": "".join(f"<p>{html.escape(note)}</p>" for note in notes),
        "short": _table(brief(comparison.table)),
        "all": _table(readable(comparison.table)),
        "legend": LEGEND,
        "charts": "\n".join(map(_figure, figures.values())),
        "provenance": "".join(f"<dt>{html.escape(k)}</dt><dd>{html.escape(v)}</dd>" for k, v in provenance.items()),
    }
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(values)


def _table(table: pd.DataFrame) -> str:
    with pd.option_context("display.max_colwidth", None):
        return table.set_index("strategy").rename_axis(index=None, columns="strategy").to_html(border=0)


def _figure(figure: Chart) -> str:
    picture = f'<img alt="{html.escape(figure.alt)}" src="data:image/png;base64,{figure.png()}">'
    return f"<figure>{picture}<figcaption>{html.escape(figure.about)}</figcaption></figure>"
