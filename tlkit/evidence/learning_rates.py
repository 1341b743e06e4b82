"""The learning rate of each strategy: where it came from, and whether it was tuned for runs like these."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from tlkit.corpus import NAMED
from tlkit.models import PRESETS, chosen_model
from tlkit.names import CONTROL
from tlkit.settings import DATA
from tlkit.strategies import STRATEGIES, sha256_of_own

RECORDS = DATA / "sweeps"
# A rate is tuned for a model, a corpus and a batch; how much of the corpus is read, and how often, is only said.
TUNED_FOR = {
    "weights_sha256": "the weights of {model}",
    "corpus_sha256": "corpus {corpus}",
    "block_size": "blocks of {block_size}",
    "batch_size": "batches of {batch_size}",
}


@dataclass(frozen=True)
class LearningRate:
    """A rate and its history.

    Attributes:
        value: per optimizer step, the highest after the warm-up.
        source: where it came from, in words.
        tuned: whether it was found between worse ones, for runs like these.
        runs: how many were spent on finding it.
    """

    value: float
    source: str
    tuned: bool
    runs: int = 0


def best_rates(record: pd.DataFrame, origin: str = "swept") -> dict[str, LearningRate]:
    """Choose for each strategy the rate with the lowest mean validation perplexity over its seeds.

    A rate at the edge of those tried is not tuned, for a better one may lie outside. A strategy whose every run
    diverged or failed has no rate and is left out; `why_no_rate` says why.

    Args:
        record: a row for each run, with the columns strategy, learning_rate and validation_perplexity, and those of
            the search that say which model, corpus and batch the runs had.
        origin: the first word of each source, such as "recorded".

    Raises:
        ValueError: where a column or a number is missing, or the runs are of several models, corpora or batches.
    """
    _refuse_record(record)
    details = [f"{record.profile.iloc[0]} profile"] if "profile" in record else []
    details += [str(record.date.max())] if "date" in record else []
    source = f"{origin} for {record.model.iloc[0] if 'model' in record else 'a model without a name'}"
    source += f" ({', '.join(details)})" if details else ""
    rates = {}
    for strategy, part in record.groupby("strategy", sort=False):
        perplexity = part.validation_perplexity.fillna(math.inf)  # diverged, or failed
        means = perplexity.groupby(part.learning_rate).mean()
        if means.empty or math.isinf(means.min()):  # also where there is none, for the architecture does not allow it
            continue
        best = float(means.idxmin())
        interior = means.index.min() < best < means.index.max()
        edge = "" if interior else "; the edge of the rates that were tried"
        rates[strategy] = LearningRate(best, source + edge, interior, len(part))
    return rates


def why_no_rate(record: pd.DataFrame, strategy: str) -> str:
    """Say why `best_rates` has found no rate for a strategy."""
    part = record[record.strategy == strategy]
    if part.empty:
        return f"no learning rate was tried for {strategy}"
    if "error" in part and part.error.notna().any():
        return f"no learning rate for {strategy}: {part.error.dropna().iloc[0]}"
    tried = f"{part.learning_rate.min():g} to {part.learning_rate.max():g}"
    return f"no learning rate for {strategy}: training diverged at every rate from {tried}"


def default_rates(model: str = "tiny") -> dict[str, float]:
    """The recorded learning rate of each strategy, as a plain number; a ValueError where there is no record."""
    return {strategy: rate.value for strategy, rate in best_rates(_recorded(model)).items()}


def rate_for(model: str | None, strategy: str, task: str = "text") -> LearningRate:
    """The recorded learning rate of one strategy on one model.

    Args:
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        strategy: one of `STRATEGIES`.
        task: of `TASKS`; a rate belongs to a task.

    Raises:
        ValueError: where none is recorded for that model: a rate of another model would be a guess.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    record = _recorded(chosen_model(model), task)
    rates = best_rates(record, "recorded")
    if strategy not in rates:
        raise ValueError(why_no_rate(record, strategy))
    return rates[strategy]


def learning_rates_for(
    model: str,
    strategies: Iterable[str],
    settings: Mapping[str, object],
    given: pd.DataFrame | Mapping[str, float] | None = None,
) -> dict[str, LearningRate]:
    """Find the learning rates that are known before any run: those given, then those recorded for the model.

    Args:
        model: preset, hub id or folder.
        strategies: names of `STRATEGIES`, or `CONTROL`.
        settings: what the runs have in common: the keys of `TUNED_FOR`, profile and corpus by name, and the task
            where it is not text.
        given: a record of the search, or rates by strategy as plain numbers; see `read_rates`.

    Returns:
        A rate for each strategy that has one. Plain numbers never count as tuned, and those of a record only where
        model, corpus, batch and, for texts in blocks, their size are the same, and for a strategy of the reader's own
        its text; the source says what differs.

    Raises:
        ValueError: as `best_rates` does.
    """
    rates, settings = {}, {"model": model, **settings}
    record = recorded_rates(model, str(settings.get("task", "text")), str(settings.get("corpus")))
    if record is not None:
        rates |= _judged(record, "recorded", settings)
    if isinstance(given, pd.DataFrame):
        rates |= _judged(given, "given, swept", settings)
    elif given:
        rates |= {name: LearningRate(value, "given", tuned=False) for name, value in given.items()}
    return {strategy: rates[strategy] for strategy in strategies if strategy in rates}


def read_rates(given: str) -> pd.DataFrame | dict[str, float]:
    """Read learning rates as a command line gives them.

    Args:
        given: a rates.csv that `compare` has written; or "full=1e-4,lora=1e-3".

    Returns:
        The record, or rates by strategy.

    Raises:
        ValueError: where the file is no such record, a strategy is unknown, or a rate is no number above 0.
        FileNotFoundError: where there is no such file.
    """
    if "=" not in given or os.path.exists(given):
        return _read_record(Path(given))
    rates = {}
    for strategy, _, value in (part.partition("=") for part in given.split(",")):
        if strategy not in (*STRATEGIES, CONTROL):
            expected = ", ".join([*STRATEGIES, CONTROL])
            raise ValueError(f"learning rates: strategy {strategy!r} is unknown: expected some of {expected}")
        rates[strategy] = float(pd.to_numeric(value, errors="coerce"))
        if not 0 < rates[strategy] < math.inf:
            raise ValueError(f"learning rates: {strategy}={value}: expected a number above 0")
    return rates


def _read_record(path: Path) -> pd.DataFrame:
    if not path.is_file():
        expected = "a rates.csv that `compare` has written, or rates such as full=1e-4"
        raise FileNotFoundError(f"{path}: no such file; expected {expected}")
    try:
        record = pd.read_csv(path)
        _refuse_record(record)
    except ValueError as error:  # pandas' own, and bytes that are no text, are ValueErrors too
        raise ValueError(f"{path}: not a record of learning rates: {str(error).splitlines()[0]}") from None
    return record


def _refuse_record(record: pd.DataFrame) -> None:
    if missing := {"strategy", "learning_rate", "validation_perplexity"} - set(record):
        raise ValueError(f"the column {', '.join(sorted(missing))} is missing")
    numbers = record[["learning_rate", "validation_perplexity"]]
    if record.empty or not numbers.apply(pd.api.types.is_numeric_dtype).all():
        raise ValueError("expected runs with numbers for learning_rate and validation_perplexity")
    for column in ("model", "profile", "corpus", *TUNED_FOR):
        if column in record and record[column].nunique(dropna=False) > 1:
            several = " and ".join(str(value)[:40] for value in record[column].unique()[:2])
            raise ValueError(f"it holds runs of more than one {column}: {several}; expected one")


def _judged(record: pd.DataFrame, origin: str, settings: Mapping[str, object]) -> dict[str, LearningRate]:
    """The best rates of a record; not tuned where the runs to come differ from its runs in what matters."""
    # Examples are padded to the longest of a run, so their width differs with the documents and decides nothing.
    decisive = [key for key in TUNED_FOR if key != "block_size" or settings.get("task", "text") == "text"]
    differences = [
        TUNED_FOR[key].format_map(settings)
        for key in decisive
        if key not in record or record[key].iloc[0] != settings[key]
    ]
    other_profile = "profile" in record and record.profile.iloc[0] != settings["profile"]
    said = [*differences, *([f"profile {settings['profile']}"] if other_profile else [])]
    rates = best_rates(record, origin)
    for strategy, rate in rates.items():
        changed = ["another text of the strategy"] if _has_other_text(record, strategy) else []
        if here := ", ".join([*said, *changed]):
            tuned = rate.tuned and not differences and not changed
            rates[strategy] = replace(rate, source=f"{rate.source}; here: {here}", tuned=tuned)
    return rates


def _has_other_text(record: pd.DataFrame, strategy: str) -> bool:
    """Whether its runs are of a strategy of the reader's own that has the same name and another text today."""
    now = sha256_of_own(strategy) or ""
    texts = record.get("strategy_sha256", pd.Series("", record.index)).fillna("")
    return bool((texts[record.strategy == strategy] != now).any())


def record_folder(model: str, task: str = "text") -> Path:
    """Where the sweeps of a preset are: those of going on with texts by the model, the others below, by the task."""
    return RECORDS / model / ("" if task == "text" else task)


def recorded_rates(model: str, task: str = "text", corpus: str = "") -> pd.DataFrame | None:
    """The search for learning rates that is recorded for a model; None where there is none.

    Args:
        model: a preset, also by the hub id behind it; of others nothing is recorded.
        task: of `TASKS`.
        corpus: a bundled one may have a record of its own, in a folder below the model's.
    """
    preset = next((name for name, entry in PRESETS.items() if model in (name, entry.source)), None)
    folders = [record_folder(str(preset), task)]
    if corpus in NAMED:
        folders.insert(0, folders[0] / corpus)
    path = next((folder / "rates.csv" for folder in folders if (folder / "rates.csv").is_file()), None)
    return None if path is None else pd.read_csv(path)


def _recorded(model: str, task: str = "text") -> pd.DataFrame:
    record = recorded_rates(model, task)
    if record is None:
        raise ValueError(
            f"no learning rates are recorded for {model}: give one (full fine-tuning of a pretrained model often wants "
            f"1e-5 to 1e-4, lora ten times that), or let `python -m tlkit compare --model {model}` search for them"
        )
    return record
