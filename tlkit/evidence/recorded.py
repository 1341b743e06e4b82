"""What comes with the workbook: comparisons as `compare` wrote them, and what one setting does to each strategy."""

import io
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pandas as pd

from tlkit.evidence.learning_rates import RECORDS, record_folder
from tlkit.settings import DATA

RECORDED = DATA / "comparisons"  # a folder for each model, with some of the files that `compare` writes


@dataclass(frozen=True)
class RecordedComparison:
    """A comparison that comes with the workbook: tables as in `Comparison`, and what they depend on, a line each."""

    table: pd.DataFrame
    runs: pd.DataFrame
    documents: pd.DataFrame
    answers: pd.DataFrame
    written: pd.DataFrame
    provenance: tuple[str, ...]


def recorded_comparison(
    model: str, strategies: str = "classic", *, task: str = "text", folder: Path = RECORDED
) -> RecordedComparison:
    """Read the comparison that was recorded for a model.

    Args:
        strategies: "classic", those of the published experiment; "all"; "peft", methods of the library peft that are
            not among them; or "in_time", the schedules.
        task: of `TASKS`; each but "text" has one comparison, of the strategies that its lesson is about.
        folder: in which each model has its own folder, and in that another task, and those of other strategies.

    Raises:
        ValueError: where none is recorded for this model, these strategies and this task.
    """
    place = folder / model / ("" if task == "text" else task) / ("" if strategies == "classic" else strategies)
    if not (place / "comparison.csv").is_file():
        there = ", ".join(sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob("comparison.csv")))
        raise ValueError(f"no comparison is recorded in {place.relative_to(folder).as_posix()}: there are {there}")
    tables = {name: _table(place / f"{name}.csv") for name in ("comparison", "runs", "documents", "answers", "written")}
    table, provenance = tables.pop("comparison")
    return RecordedComparison(table, provenance=provenance, **{name: rows for name, (rows, _) in tables.items()})


def recorded(sweep: str, model: str = "tiny", task: str = "text") -> pd.DataFrame:
    """The record of a sweep that comes with the workbook; its columns say where and when it was made.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`.
        task: of `TASKS`; what is recorded of another than "text" is in a folder of the task's name.

    Raises:
        ValueError: where nothing is recorded under these names.
    """
    path = record_folder(model, task) / f"{sweep}.csv"
    if not path.is_file():
        there = ", ".join(sorted(file.relative_to(RECORDS).as_posix() for file in RECORDS.rglob("*.csv")))
        raise ValueError(f"no sweep is recorded in {path.relative_to(RECORDS).as_posix()}: there are {there}")
    return pd.read_csv(path)


def _table(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """A table as `compare` writes it, empty where it wrote none, and the lines of provenance above it."""
    if not path.is_file():
        return pd.DataFrame(), ()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comment = list(takewhile(lambda line: line.startswith("# "), lines))
    table = pd.read_csv(io.StringIO("".join(lines[len(comment) :])), keep_default_na=path.stem != "written")
    return table, tuple(line.removeprefix("# - ").rstrip() for line in comment)
