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

DPI = 300  # of a PNG file: what a journal asks for
TABLES = ("runs", "documents", "written", "pairs", "attempts")  # each in a file beside the comparison's
NOT_ALWAYS = ("written", "attempts")  # only some tasks and comparisons have these
# What a terminal and the first view of a page show of a column: its name, and its form.
BRIEF = {
    "perplexity": ("perplexity", "{:.2f}"),
    "difference": ("against", "{:+.2f}"),
    "rank": ("rank", "{}"),
    "general": ("general text", "{:.2f}"),
    "balanced_accuracy": ("accuracy %", "{:.1%}"),
    "stopped": ("stop %", "{:.1%}"),
    "seconds": ("seconds", "{:.2f}"),
    "peak_memory_mb": ("peak MB", "{:.0f}"),
}
SAME_IN_ALL = ("corpus", "stride", "block_size", "batch_size", "precision", "device", "against", "command", "date")
WORDS = ("strategy", "rank", "rate_source", "reason")  # columns of text
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
    drawn = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.runs) > 1 else {}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    tables = {"comparison": comparison.table, "summary": short} | {name: getattr(comparison, name) for name in TABLES}
    content = {"provenance": comparison.provenance, "failures": comparison.failures}
    content |= {name: rows_of(getattr(comparison, name)) for name in ("table", "runs", "pairs")}
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


def rows_of(table: pd.DataFrame) -> list[dict]:
    """A table as JSON has it: a dict a row, None where there is no figure."""
    return json.loads(table.to_json(orient="records", double_precision=15))


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a comparison in which rows differ, with four digits; empty where there is no figure."""
    table = table.drop(columns=[name for name in SAME_IN_ALL if name in table]).dropna(axis=1, how="all")
    return table.map(lambda value: "" if pd.isna(value) else f"{value:.4g}" if isinstance(value, float) else str(value))


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The few columns of a comparison that say most, as text; the difference with its interval."""
    shown, against = {"strategy": table.strategy}, next(iter(table.get("against", ())), "")
    for column, (name, form) in BRIEF.items():
        if column in table and (column in ("rank", "difference") or table[column].notna().any()):
            shown[name] = [form.format(value) if pd.notna(value) else "" for value in table[column]]
    ends = zip(shown["against"], table.difference_low, table.difference_high, strict=True)
    shown["against"] = [f"{one} ({low:.2f} to {high:.2f})" if pd.notna(low) else one for one, low, high in ends]
    return pd.DataFrame(shown).rename(columns={"against": f"against {against}".strip()})


def as_markdown(table: pd.DataFrame) -> str:
    """The columns of a comparison in which rows differ, as a Markdown table."""
    shown = readable(table).replace(r"\|", r"\\|", regex=True)
    sides = ["left" if column in WORDS else "right" for column in shown]
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def notes_on(table: pd.DataFrame) -> list[str]:
    """What a reader of a comparison must know: what was not possible, and what has no rank for want of a tuned rate."""
    guessed = table[table.rate_tuned.eq(False) & table.seeds.gt(0)].strategy
    notes = [f"Not possible: {reason}" for reason in table.reason.fillna("") if reason]
    if len(guessed):
        notes.append(f"Not ranked, because their learning rates are not tuned for these runs: {', '.join(guessed)}")
    return notes
