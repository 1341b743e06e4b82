"""The recorded comparisons: their tables, and the picture of two that README and the index page show."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from course.lessons import FOLDER
from tlkit.files import write_atomically
from tlkit.reports.figure import COLOURS
from tlkit.settings import DATA

RECORDED_MODELS = {"tiny": "the bundled model, 4 million values", "smollm2-135m-instruct": "SmolLM2, 135 million"}


def recorded(table: str) -> pd.DataFrame:
    """Read a table that `compare` wrote, such as "tiny/all/runs" (of `data/comparisons`)."""
    return pd.read_csv(DATA / "comparisons" / f"{table}.csv", comment="#")


def provenance(comparison: str) -> str:
    """Read how a comparison, such as "tiny/all", came about: model, text, seeds, versions and command, a line each."""
    lines = (DATA / "comparisons" / comparison / "comparison.csv").read_text(encoding="utf-8").splitlines()
    return "\n".join(line.removeprefix("# - ") for line in lines if line.startswith("# - "))


def draw_result(folder: Path = FOLDER) -> None:
    """Draw what strategies gain and forget on two recorded models, a point a seed, for README and the index."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), sharex=True, sharey=True, layout="constrained")
    plt.close(figure)
    for axes, (model, title) in zip(panels, RECORDED_MODELS.items(), strict=True):
        runs = recorded(f"{model}/runs")
        runs = runs[runs.learning_rate.notna() & (runs.strategy != "random initialisation")]
        gained = 100 * (1 - runs.perplexity / runs.perplexity_before)
        forgotten = 100 * (runs.general / runs.general_before - 1)
        for number, strategy in enumerate(runs.strategy.unique()):
            own = runs.strategy == strategy
            axes.plot(gained[own], forgotten[own], "o", color=COLOURS[number % len(COLOURS)], label=strategy)
        axes.axhline(0, color="#888888", linewidth=1)
        axes.set_title(title)
        axes.set_xlabel("perplexity on Rust falls by (%)")
    panels[0].set_ylabel("perplexity on general text rises by (%)")
    panels[0].legend(fontsize="small")
    (folder / "images").mkdir(exist_ok=True)
    write_atomically(folder / "images" / "forgetting.png", lambda path: figure.savefig(path, format="png", dpi=150))
