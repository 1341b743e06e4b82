"""A comparison as files: CSV, JSON, Markdown, LaTeX, self-contained HTML, and its charts as PNG and SVG."""

import json
from functools import partial
from pathlib import Path

import pandas as pd
from jinja2 import Template

from tlkit.evidence.comparison import Comparison
from tlkit.files import lock_folder, write_atomically, write_text_atomically
from tlkit.reports.charts import CHARTS

DPI = 300  # what a journal asks for
TABLES = ("runs", "documents", "pairs", "attempts")  # each in a file, unless empty
# Columns that a terminal and the first view of a page show: name and form.
BRIEF = {
    "perplexity": ("perplexity", "{:.2f}"),
    "difference": ("against", "{:+.2f}"),
    "rank": ("rank", "{}"),
    "general": ("general text", "{:.2f}"),
    "balanced_accuracy": ("accuracy %", "{:.1%}"),
    "seconds": ("seconds", "{:.2f}"),
    "peak_memory_mb": ("peak MB", "{:.0f}"),
}
TEMPLATE = Path(__file__).with_name("comparison_page.html")


def export(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write every table and chart into a folder, each with its provenance; returns their paths in order."""
    made = {key: _in_words(value) for key, value in comparison.provenance.items()}
    provenance = "\n".join(f"- {key}: {value}" for key, value in made.items())
    comment = "".join(f"# {line}\n" for line in provenance.splitlines())
    failed = [f"FAILED {name}: {text.splitlines()[-1]}" for name, text in comparison.failures.items()]
    notes, short = [*failed, *notes_on(comparison.table)], brief(comparison.table)
    drawn = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.runs) > 1 else {}
    charts = {name: chart for name, chart in drawn.items() if chart is not None}
    page = Template(TEMPLATE.read_text(encoding="utf-8"), autoescape=True)
    on_page = {"short": _html(short), "all": _html(comparison.table.dropna(axis=1, how="all"))}
    tables = {"comparison": comparison.table, "summary": short} | {name: getattr(comparison, name) for name in TABLES}
    content = {"provenance": comparison.provenance, "failures": comparison.failures}
    content |= {name: rows_of(getattr(comparison, name)) for name in ("table", "runs", "pairs")}
    sides = ["left"] + ["right"] * (short.shape[1] - 1)
    shown = short.to_markdown(index=False, disable_numparse=True, colalign=sides)
    columns = "".join(side[0] for side in sides)
    texts = {
        "comparison.json": json.dumps(content, indent=2),
        "comparison.md": "\n\n".join(["# Comparison", shown, *notes, provenance]) + "\n",
        "comparison.html": page.render(made=made, rows=len(short), notes=notes, charts=charts.values(), **on_page),
        "summary.tex": comment.replace("#", "%") + short.to_latex(index=False, escape=True, column_format=columns),
    }
    texts |= {f"{name}.csv": comment + table.to_csv(index=False) for name, table in tables.items() if len(table)}
    folder, written = Path(folder), []
    with lock_folder(folder, patience=60):  # another process may have shared the runs, and writes the same
        for name, text in texts.items():
            write_text_atomically(folder / name, text)
            written.append(folder / name)
        for name, chart in charts.items():
            for kind, key in (("png", "Description"), ("svg", "Title")):
                save = partial(chart.savefig, format=kind, dpi=DPI, metadata={key: provenance})
                write_atomically(folder / f"{name}.{kind}", save)
                written.append(folder / f"{name}.{kind}")
    return sorted(written)


def _in_words(value: object) -> str:
    return "; ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def _html(table: pd.DataFrame) -> str:
    shown = table.astype(object).where(table.notna(), "").set_index("strategy").rename_axis(None)
    shown.columns.name = "strategy"
    with pd.option_context("display.max_colwidth", None):
        return shown.to_html(border=0, float_format="{:.4g}".format)


def rows_of(table: pd.DataFrame) -> list[dict]:
    """Rows as dicts for JSON, with None where there is no figure."""
    return json.loads(table.to_json(orient="records", double_precision=15))


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """The columns of a comparison that say most, as text; the difference with its interval."""
    shown, against = {"strategy": table.strategy}, next(iter(table.get("against", ())), "")
    for column, (name, form) in BRIEF.items():
        if column in table and (column in ("rank", "difference") or table[column].notna().any()):
            shown[name] = [form.format(value) if pd.notna(value) else "" for value in table[column]]
    ends = zip(shown["against"], table.difference_low, table.difference_high, strict=True)
    shown["against"] = [f"{one} ({low:.2f} to {high:.2f})" if pd.notna(low) else one for one, low, high in ends]
    return pd.DataFrame(shown).rename(columns={"against": f"against {against}".strip()})


def notes_on(table: pd.DataFrame) -> list[str]:
    """What was not possible, and what has no rank for want of a tuned rate."""
    guessed = table[table.rate_tuned.eq(False) & table.seeds.gt(0)].strategy
    notes = [f"Not possible: {reason}" for reason in table.reason.fillna("") if reason]
    if len(guessed):
        notes.append(f"Not ranked, because their learning rates are not tuned for these runs: {', '.join(guessed)}")
    return notes
