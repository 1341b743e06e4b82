"""The recorded result of the course, as README and the index page show it: a table of each model, and a picture."""

from pathlib import Path

import pandas as pd

from tlkit.checkpoints import write_atomically
from tlkit.classroom.notebooks import FOLDER
from tlkit.evidence.carry_over import recorded_carry_over, recorded_comparison
from tlkit.reports.two_models import gained_and_forgotten

RECORDED_MODELS = ("tiny", "smollm2-135m-instruct")  # whose comparisons come with the workbook, the small one first


def result_table(model: str) -> str:
    """Write the recorded comparison of a model as a Markdown table, for README.

    Args:
        model: a preset whose comparison is recorded.

    Raises:
        ValueError: where none is.
    """
    table = recorded_comparison(model).table
    shown = {
        "strategy": table.strategy,
        "values trained": _written(table.trainable_values, "{:,}"),
        "learning rate": _written(table.learning_rate, "{:g}"),
        "perplexity on Rust": _written(table.perplexity, "{:.1f}"),
        "over seeds": _written(table.perplexity_seeds_low, "{:.1f} to ")
        + _written(table.perplexity_seeds_high, "{:.1f}"),
        "rank": _written(table["rank"], "{}"),
        "on general text": _written(table.general, "{:,.1f}"),
        "Rust questions right": _written(table.rust_accuracy, "{:.0%}"),
        "general questions right": _written(table.general_accuracy, "{:.0%}"),
        "memory (MB)": _written(table.peak_memory_mb, "{:,.0f}"),
        "saved (MB)": _written(table.file_bytes / 1e6, "{:,.3g}"),
    }
    shown = pd.DataFrame(shown)
    shown.loc[table.reason.notna(), "perplexity on Rust"] = "not possible"
    return shown.to_markdown(index=False, disable_numparse=True)


def draw_result(folder: Path = FOLDER) -> None:
    """Draw what strategies gain and forget, as recorded for two models, where README and the index show it."""
    (folder / "images").mkdir(exist_ok=True)
    chart = gained_and_forgotten(recorded_carry_over(*RECORDED_MODELS))
    write_atomically(folder / "images" / "forgetting.png", lambda path: chart.savefig(path, format="png", dpi=150))


def _written(column: pd.Series, form: str) -> pd.Series:
    """Figures as text, and nothing where there is none."""
    return column.map(lambda value: "" if pd.isna(value) else form.format(value))
