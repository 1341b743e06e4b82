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
    """A comparison that comes with the workbook, as `compare` wrote it.

    Attributes:
        table: a row for each strategy.
        runs: a row for each strategy and seed.
        documents: a row for each strategy, seed and test document.
        answers: a row for each strategy, seed and question.
        provenance: what the numbers depend on, a line each.
        written: a row for each strategy, seed and answer in the model's own words; empty for other tasks.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    documents: pd.DataFrame
    answers: pd.DataFrame
    provenance: tuple[str, ...]
    written: pd.DataFrame


def recorded_comparison(
    model: str, strategies: str = "classic", *, task: str = "text", folder: Path = RECORDED
) -> RecordedComparison:
    """Read the comparison that was recorded for a model.

    Args:
        model: a preset.
        strategies: "classic", those of the published experiment; "all"; "peft", methods of the library peft that are
            not among them; or "in_time", the schedules.
        task: of `TASKS`; each but "text" has one comparison, of the strategies that its lesson is about.
        folder: in which each model has its own folder, and in that another task, and those of other strategies.

    Raises:
        ValueError: where none is recorded for this model, these strategies and this task.
    """
    place = folder / model / ("" if task == "text" else task) / ("" if strategies == "classic" else strategies)
    if not (place / "comparison.csv").is_file():
        recorded = ", ".join(_below(folder, "**/comparison.csv"))
        raise ValueError(f"no comparison is recorded in {place.relative_to(folder).as_posix()}: there are {recorded}")
    names = ("comparison", "runs", "documents", "answers")
    tables = [_table(place / f"{name}.csv") for name in names]
    written = _table(place / "written.csv")[0] if (place / "written.csv").is_file() else pd.DataFrame()
    return RecordedComparison(*(table for table, _ in tables), tables[0][1], written)


def recorded(sweep: str, model: str = "tiny", task: str = "text") -> pd.DataFrame:
    """The record of a sweep that comes with the workbook; its columns say where and when it was made.

    Args:
        sweep: `rates`, `epochs`, `passages` or `general`.
        model: a preset.
        task: of `TASKS`; what is recorded of another than "text" is in a folder of the task's name.

    Raises:
        ValueError: where nothing is recorded under these names.
    """
    path = record_folder(model, task) / f"{sweep}.csv"
    if not path.is_file():
        records = ", ".join(_below(RECORDS, "**/*.csv"))
        raise ValueError(f"no sweep is recorded in {path.relative_to(RECORDS).as_posix()}: there are {records}")
    return pd.read_csv(path)


def _below(folder: Path, pattern: str) -> list[str]:
    """The folders and files of a pattern, as they are asked for."""
    paths = [path.parent if path.stem == "comparison" else path for path in folder.glob(pattern)]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def _table(path: Path) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """A table as `compare` writes it, and the lines of provenance above it."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comment = list(takewhile(lambda line: line.startswith("# "), lines))
    table = pd.read_csv(io.StringIO("".join(lines[len(comment) :])), keep_default_na=path.stem != "written")
    return table, tuple(line.removeprefix("# - ").rstrip() for line in comment)
