"""A comparison as files: CSV, JSON, Markdown, self-contained HTML, and its charts as PNG and SVG."""

import base64
import html
import json
from pathlib import Path

import pandas as pd

from tlkit.evidence.comparison import Comparison, completion_table
from tlkit.reports.charts import CHARTS


def export(comparison: Comparison, folder: str | Path) -> list[Path]:
    """Write every table and chart below `folder`, each with its provenance; returns the paths written.

    Raises OSError where the folder cannot be written.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    provenance = "\n".join(f"- {key}: {value}" for key, value in comparison.provenance.items())
    failures = "".join(f"\nFAILED {name}: {text.splitlines()[-1]}\n" for name, text in comparison.failures.items())
    comment = "".join(f"# {line}\n" for line in provenance.splitlines())
    texts = {
        "comparison.csv": comment + comparison.table.to_csv(index=False),
        "runs.csv": comment + comparison.runs.to_csv(index=False),
        "comparison.json": json.dumps(
            {
                "provenance": comparison.provenance,
                "table": json.loads(comparison.table.to_json(orient="records")),
                "runs": json.loads(comparison.runs.to_json(orient="records")),
                "failures": comparison.failures,
            },
            indent=2,
        ),
        "comparison.md": f"# Comparison\n\n{as_markdown(comparison.table)}\n{failures}\n{provenance}\n",
    }
    if len(comparison.attempts):
        texts["attempts.csv"] = comment + comparison.attempts.to_csv(index=False)
        completion = completion_table(comparison)
        texts["completion.csv"] = comment + completion.to_csv(index=False)
        rates = completion[["as_planned", "on_device", "completed"]].mean()
        texts["comparison.md"] += (
            f"- as planned {rates.as_planned:.0%}, on the device after falling back {rates.on_device:.0%}, "
            f"in all {rates.completed:.0%} of the runs (completion.csv)\n"
        )
    figures = {name: draw(comparison) for name, draw in CHARTS.items()} if len(comparison.curves) else {}
    figures = {name: figure for name, figure in figures.items() if figure is not None}
    for name, figure in figures.items():
        for kind in ("png", "svg"):
            metadata = {"Title" if kind == "svg" else "Description": provenance}
            figure.savefig(folder / f"{name}.{kind}", dpi=120, metadata=metadata)
    pictures = {figure.alt: (folder / f"{name}.png").read_bytes() for name, figure in figures.items()}
    texts["comparison.html"] = _page(comparison, pictures, provenance, failures)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return sorted([folder / name for name in texts] + [folder / f"{n}.{k}" for n in figures for k in ("png", "svg")])


def as_markdown(table: pd.DataFrame) -> str:
    """The columns people read, rounded, as a Markdown table."""
    shown = readable(table)
    lines = [list(shown.columns), ["---"] * len(shown.columns), *shown.astype(str).values.tolist()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The columns people read, as text with sensible digits; empty where there is no figure."""

    def numbers(column: str, digits: int = 2) -> list[str]:
        return [f"{value:,.{digits}f}" if pd.notna(value) else "" for value in table[column]]

    def intervals(name: str) -> list[str]:
        return [
            f"{low} to {high}" if low else ""
            for low, high in zip(numbers(f"{name}_low"), numbers(f"{name}_high"), strict=True)
        ]

    return pd.DataFrame(
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
            "seconds": numbers("seconds"),
            "peak MB": numbers("peak_memory_mb", 0),
        }
    )


def _page(comparison: Comparison, pictures: dict[str, bytes], provenance: str, failures: str) -> str:
    """Everything on one page that needs no other file; `pictures` are PNG files by their alternative text."""
    images = [
        f'<img alt="{html.escape(words)}" src="data:image/png;base64,{base64.b64encode(picture).decode()}">'
        for words, picture in pictures.items()
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Comparison of strategies</title>'
        "<style>body{font-family:sans-serif;max-width:70em;margin:2em auto}td,th{padding:.2em .6em;text-align:right}"
        "img{max-width:100%}</style><h1>Comparison of strategies</h1>"
        f"{readable(comparison.table).to_html(index=False, border=0)}<pre>{html.escape(failures)}</pre>"
        f"{''.join(images)}<h2>Provenance</h2><pre>{html.escape(provenance)}</pre></html>"
    )
