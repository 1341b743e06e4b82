"""A comparison as files: CSV, JSON, Markdown, self-contained HTML, and its charts as PNG and SVG."""

import html
import json
from functools import partial
from pathlib import Path

import pandas as pd

from tlkit.checkpoints import sha256_of, write_atomically
from tlkit.evidence.comparison import Comparison
from tlkit.fitting.attempts import HOST
from tlkit.reports.charts import CHARTS

BRIEF = (  # what a terminal shows of a comparison; its files have the rest
    "strategy",
    "perplexity",
    "difference",
    "of the difference",
    "rank",
    "accuracy %",
    "stop %",
    "general text",
    "seconds",
    "peak MB",
)
# Of a task, the columns beside perplexity: how they are called in tables, and digits.
TASK_COLUMNS = {
    "balanced_accuracy": ("accuracy %", 1),
    "stopped": ("stop %", 0),
    "empty": ("empty %", 0),
    "answer_tokens": ("tokens of an answer", 0),
    "in_form": ("in form %", 0),
    "one_word_right": ("one word right %", 0),
    "refused_wrongly": ("refused wrongly %", 0),
}
SHARES = {"stopped", "empty", "in_form", "one_word_right", "refused_wrongly"}  # of 1, shown as percentages
# Answers are written twice: the likeliest tokens, and sampled ones.
TASK_COLUMNS |= {
    f"sampled_{column}": (f"sampled: {TASK_COLUMNS[column][0]}", 0) for column in (*sorted(SHARES), "answer_tokens")
}
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
    provenance = "\n".join(f"- {key}: {_in_words(value)}" for key, value in comparison.provenance.items())
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
        f"{name}.csv": _write(folder / f"{name}.csv", comment + table.to_csv(index=False))
        for name, table in tables.items()
    }
    pictures = {}
    figures = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.curves) else {}
    for name, figure in figures.items():
        for kind in ("png", "svg") if figure is not None else ():
            metadata = {"Title" if kind == "svg" else "Description": provenance}
            save = partial(figure.savefig, format=kind, dpi=DPI, metadata=metadata)
            written[f"{name}.{kind}"] = write_atomically(folder / f"{name}.{kind}", save)
        if figure is not None:
            pictures[figure.alt] = figure.png()
    markdown = f"# Comparison\n\n{as_markdown(comparison.table)}\n{notes}\n{provenance}\n{summary}"
    written["comparison.md"] = _write(folder / "comparison.md", markdown)
    written["comparison.html"] = _write(folder / "comparison.html", _page(comparison, pictures, provenance, notes))
    content = {
        "provenance": comparison.provenance,
        "table": rows_of(comparison.table),
        "runs": rows_of(comparison.runs),
        "pairs": rows_of(comparison.pairs),
        "failures": comparison.failures,
        "files": written,
    }
    _write(folder / "comparison.json", json.dumps(content, indent=2))
    for name, digest in earlier.items():
        path = folder / name
        if name not in written and path.is_file() and sha256_of(path) == digest:
            path.unlink()
    return sorted(folder / name for name in (*written, "comparison.json"))


def rows_of(table: pd.DataFrame) -> list[dict]:
    """A table as JSON has it: a dict a row, None where there is no figure."""
    return json.loads(table.to_json(orient="records", double_precision=15))


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


def as_markdown(table: pd.DataFrame) -> str:
    """The columns people read, rounded, as a Markdown table."""
    shown = readable(table).astype(str).replace(r"\|", r"\\|", regex=True)
    text = ("strategy", "rank", "rate from", "reason")
    sides = ["left" if column in text else "right" for column in shown]
    return shown.to_markdown(index=False, disable_numparse=True, colalign=sides)


def brief(table: pd.DataFrame) -> pd.DataFrame:
    """Choose of `readable` the columns that a terminal has room for.

    Args:
        table: of a comparison.

    Returns:
        Those of `BRIEF`, as text.
    """
    shown = readable(table)
    empty = [name for name in ("general text",) if name in shown and shown[name].eq("").all()]  # a classifier has none
    return shown[[name for name in BRIEF if name in shown and name not in empty]]


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Choose the columns that people read, as text with sensible digits; empty where there is no figure.

    Args:
        table: of a comparison.

    Returns:
        A row for each strategy; where the model's architecture does not allow one, the column `reason` says why.
    """

    def numbers(column: str, digits: int = 2) -> list[str]:
        return [f"{value:,.{digits}f}" if pd.notna(value) else "" for value in table[column]]

    def intervals(name: str, digits: int = 2) -> list[str]:
        return [
            f"{low} to {high}" if low else ""
            for low, high in zip(numbers(f"{name}_low", digits), numbers(f"{name}_high", digits), strict=True)
        ]

    shares = {
        column: 100 * table[column]
        for column in table
        if "_accuracy" in column or column.removeprefix("sampled_") in SHARES
    }
    table = table.assign(file_mb=table.file_bytes / 1e6, **shares)
    reasons = table.get("reason", pd.Series("", table.index)).fillna("")
    shown = pd.DataFrame(
        {
            "strategy": table.strategy,
            "trainable values": numbers("trainable_values", 0),
            "%": numbers("trainable_percent"),
            "perplexity": numbers("perplexity"),
            "over documents": intervals("perplexity"),
            "over seeds": intervals("perplexity_seeds"),
            "difference": numbers("difference"),
            "of the difference": intervals("difference"),
            "rank": table["rank"].fillna(""),
            "bits per byte": numbers("bits_per_byte"),
            "general text": numbers("general"),
            "improvement %": numbers("improvement_percent"),
            "Rust right %": numbers("rust_accuracy", 1),
            "gained on Rust": intervals("rust_accuracy_difference", 1),
            "general right %": numbers("general_accuracy", 1),
            "gained on general": intervals("general_accuracy_difference", 1),
            "file MB": numbers("file_mb"),
            "s for 32 tokens": numbers("generate_seconds"),
            "seconds": numbers("seconds"),
            "peak MB": numbers("peak_memory_mb", 0),
            "learning rate": [f"{rate:g}" if pd.notna(rate) else "" for rate in table.learning_rate],
            "rate from": table.rate_source.fillna(""),
        }
    )
    for column, (name, digits) in TASK_COLUMNS.items():
        if column in table:
            shown[name] = numbers(column, digits)
    if "balanced_accuracy" in table:
        shown["accuracy over texts"] = intervals("balanced_accuracy", 1)
    if "tuning_runs" in table:  # which older records lack
        shown["tuning runs"] = numbers("tuning_runs", 0)
    shown.loc[reasons.ne(""), "trainable values"] = ""
    return shown.assign(reason=reasons) if reasons.any() else shown


def notes_on(table: pd.DataFrame) -> list[str]:
    """Say what a reader of the table must know: what was not possible, and what has no rank for want of a tuned rate.

    Args:
        table: of a comparison.

    Returns:
        A line for each.
    """
    guessed = table[table.rate_tuned.eq(False) & table.seeds.gt(0)].strategy
    notes = [f"Not possible: {row.reason}" for row in table[table.reason != ""].itertuples()]
    if len(guessed):
        notes.append(f"Not ranked, because their learning rates are not tuned for these runs: {', '.join(guessed)}")
    return notes


def _files_of_earlier_export(folder: Path) -> dict[str, str]:
    """Name and SHA-256 of what an earlier export has noted that it wrote here."""
    try:
        files = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["files"]
        return {name: digest for name, digest in files.items() if Path(name).name == name}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # none, or a file of somebody else


def _write(path: Path, text: str) -> str:
    return write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def _in_words(value: object) -> str:
    return "; ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def _page(comparison: Comparison, pictures: dict[str, str], provenance: str, notes: str) -> str:
    """Everything on one page that needs no other file; `pictures` are PNG files in base64 by their words."""
    images = [
        f'<img alt="{html.escape(words)}" src="data:image/png;base64,{picture}">' for words, picture in pictures.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Comparison of strategies</title>'
        "<style>body{font-family:sans-serif;max-width:70em;margin:2em auto}td,th{padding:.2em .6em;text-align:right}"
        "img{max-width:100%}</style><h1>Comparison of strategies</h1>"
        f"{readable(comparison.table).to_html(index=False, border=0)}<pre>{html.escape(notes)}</pre>"
        f"{''.join(images)}<h2>Provenance</h2><pre>{html.escape(provenance)}</pre></html>"
    )
