"""A comparison as files: CSV, JSON, Markdown, self-contained HTML, and its charts as PNG and SVG."""

import json
from functools import partial
from pathlib import Path

import pandas as pd

from tlkit.checkpoints import sha256_of, write_atomically, write_text_atomically
from tlkit.evidence.comparison import Comparison
from tlkit.names import HOST
from tlkit.reports.charts import CHARTS
from tlkit.reports.conclusions import conclusions
from tlkit.reports.page import comparison_page
from tlkit.reports.tables import NAMED_BY_WORDS, as_markdown, brief, notes_on, rows_of

DPI = 300  # of a PNG file: what a journal asks for
TABLES = ("runs", "documents", "answers", "written", "pairs")  # of a comparison, each in a CSV file beside the table


def export(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write every table and chart into a folder, each with its provenance.

    Files of an earlier export that this one does not write are removed, if they are as they were written.

    Args:
        comparison: what `compare` returned.
        folder: is made where there is none.

    Returns:
        The paths written, in order.

    Raises:
        OSError: where the folder cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    earlier = _files_of_earlier_export(folder)
    made = {key: _in_words(value) for key, value in comparison.provenance.items()}
    provenance = "\n".join(f"- {key}: {value}" for key, value in made.items())
    comment = "".join(f"# {line}\n" for line in provenance.splitlines())
    failed = [f"FAILED {name}: {text.splitlines()[-1]}" for name, text in comparison.failures.items()]
    notes = "".join(f"\n{line}\n" for line in [*failed, *notes_on(comparison.table)])
    tables = {"comparison": comparison.table} | {name: getattr(comparison, name) for name in TABLES}
    if comparison.written.empty:
        del tables["written"]
    summary = ""
    if len(comparison.attempts):
        completion = completion_table(comparison)
        tables |= {"attempts": comparison.attempts, "completion": completion}
        shares = completion[["as_planned", "on_device", "completed"]].mean()
        summary = (
            f"- as planned {shares.as_planned:.0%}, on the device after falling back {shares.on_device:.0%}, "
            f"in all {shares.completed:.0%} of the runs (completion.csv)\n"
        )
    written = {
        f"{name}.csv": write_text_atomically(folder / f"{name}.csv", comment + table.to_csv(index=False))
        for name, table in tables.items()
    }
    drawn = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.curves) else {}
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            metadata = {"Title" if kind == "svg" else "Description": provenance}
            save = partial(figure.savefig, format=kind, dpi=DPI, metadata=metadata)
            written[f"{name}.{kind}"] = write_atomically(folder / f"{name}.{kind}", save)
    said = conclusions(comparison)
    markdown = f"# Comparison\n\n{said}\n\n{as_markdown(comparison.table)}\n{notes}\n{provenance}\n{summary}"
    written["comparison.md"] = write_text_atomically(folder / "comparison.md", markdown)
    written["comparison.html"] = write_text_atomically(
        folder / "comparison.html", comparison_page(comparison, figures, made)
    )
    short = brief(comparison.table)
    written["summary.csv"] = write_text_atomically(folder / "summary.csv", comment + short.to_csv(index=False))
    written["summary.tex"] = write_text_atomically(folder / "summary.tex", comment.replace("#", "%") + _latex(short))
    content = {
        "provenance": comparison.provenance,
        "table": rows_of(comparison.table),
        "runs": rows_of(comparison.runs),
        "pairs": rows_of(comparison.pairs),
        "failures": comparison.failures,
        "files": written,
    }
    write_text_atomically(folder / "comparison.json", json.dumps(content, indent=2))
    for name, digest in earlier.items():
        path = folder / name
        if name not in written and path.is_file() and sha256_of(path) == digest:
            path.unlink()
    return sorted(folder / name for name in (*written, "comparison.json"))


def completion_table(comparison: Comparison) -> pd.DataFrame:
    """Say of each run with fallback what it tried where, whether it ran as planned, on the device, at all.

    Returns:
        A row for each strategy and seed. The means of as_planned, on_device and completed are the success rate as
        planned, on the device after falling back, and overall.
    """
    rows = []
    for (strategy, seed), part in comparison.attempts.groupby(["strategy", "seed"], sort=False):
        training = part[part.action == "training"]
        tried = part[part.action.isin(["estimate", "loading", "training"])]
        done = f"{strategy}, seed {seed}" not in comparison.failures
        last = training.iloc[-1] if len(training) else None
        on_device = done and last is not None and last.device != HOST
        rows.append(
            {
                "strategy": strategy,
                "seed": seed,
                "history": " > ".join(f"{row.rung} ({row.failed_in or 'done'})" for row in tried.itertuples()),
                "as_planned": on_device and last.rung == "as planned",
                "on_device": on_device,
                "completed": done,
            }
        )
    return pd.DataFrame(rows, columns=["strategy", "seed", "history", "as_planned", "on_device", "completed"])


def _files_of_earlier_export(folder: Path) -> dict[str, str]:
    """Name and SHA-256 of what an earlier export has noted that it wrote here."""
    try:
        files = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["files"]
        return {name: digest for name, digest in files.items() if Path(name).name == name}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # none, or a file of somebody else


def _latex(table: pd.DataFrame) -> str:
    """A table for LaTeX with the package booktabs."""
    sides = "".join("l" if name in NAMED_BY_WORDS else "r" for name in table)
    return table.to_latex(index=False, escape=True, column_format=sides)


def _in_words(value: object) -> str:
    return "; ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)
