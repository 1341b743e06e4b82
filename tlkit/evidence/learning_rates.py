"""The learning rate of each strategy: where it came from, and whether it was tuned for runs like these."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from tlkit.corpus import NAMED
from tlkit.models import PRESETS, chosen_model
from tlkit.names import CONTROL
from tlkit.settings import DATA
from tlkit.strategies import STRATEGIES

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
        record: of a search, a row for each run.
        origin: the first word of each source, such as "recorded".
    """
    rates, source = {}, f"{origin} for {record.model.iloc[0]} ({record.profile.iloc[0]} profile, {record.date.max()})"
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


def rate_for(model: str | None, strategy: str, task: str = "text", optimizer: str = "adamw") -> LearningRate:
    """The recorded learning rate of one strategy on one model.

    Args:
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        task: of `TASKS`; a rate belongs to a task.
        optimizer: that takes the steps; what is recorded is of AdamW.

    Raises:
        ValueError: where none is recorded for that model: a rate of another model would be a guess.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    if optimizer != "adamw":
        raise ValueError(f"no rate is recorded for {optimizer}: expected --learning-rate with it")
    record = _recorded(chosen_model(model), task)
    rates = best_rates(record, "recorded")
    if strategy not in rates:
        raise ValueError(why_no_rate(record, strategy))
    return rates[strategy]


def learning_rates_for(
    model: str,
    strategies: Iterable[str],
    settings: Mapping[str, object],
    given: Mapping[str, float] | None = None,
) -> dict[str, LearningRate]:
    """Find the learning rates that are known before any run: those given, then those recorded for the model.

    Args:
        strategies: names of `STRATEGIES`, or `CONTROL`.
        settings: what the runs have in common: the keys of `TUNED_FOR`, profile and corpus by name, and the task
            where it is not text.

    Returns:
        A rate for each strategy that has one. Those given never count as tuned, and those of a record only where
        model, corpus, batch and, for texts in blocks, their size are the same; the source says what differs.
    """
    record = recorded_rates(model, str(settings.get("task", "text")), str(settings.get("corpus")))
    rates = {} if record is None else _judged(record, {"model": model, **settings})
    rates |= {name: LearningRate(value, "given", tuned=False) for name, value in (given or {}).items()}
    return {strategy: rates[strategy] for strategy in strategies if strategy in rates}


def read_rates(given: str) -> dict[str, float]:
    """Read learning rates as a command line gives them: "full=1e-4,lora=1e-3".

    Raises:
        ValueError: where a strategy is unknown, or a rate is no number above 0.
    """
    rates = {}
    for strategy, _, value in (part.partition("=") for part in given.split(",")):
        if strategy not in (*STRATEGIES, CONTROL):
            expected = ", ".join([*STRATEGIES, CONTROL])
            raise ValueError(f"learning rates: strategy {strategy!r} is unknown: expected some of {expected}")
        rates[strategy] = float(pd.to_numeric(value, errors="coerce"))
        if not 0 < rates[strategy] < math.inf:
            raise ValueError(f"learning rates: {strategy}={value}: expected a number above 0")
    return rates


def _judged(record: pd.DataFrame, settings: Mapping[str, object]) -> dict[str, LearningRate]:
    """The best rates of a record; not tuned where the runs to come differ from its runs in what matters."""
    # Examples are padded to the longest of a run, so their width differs with the documents and decides nothing.
    decisive = [key for key in TUNED_FOR if key != "block_size" or settings.get("task", "text") == "text"]
    other = [TUNED_FOR[key].format_map(settings) for key in decisive if record[key].iloc[0] != settings[key]]
    said = [*other, *([f"profile {settings['profile']}"] if record.profile.iloc[0] != settings["profile"] else [])]
    rates = best_rates(record, "recorded")
    if not said:
        return rates
    return {
        strategy: replace(rate, source=f"{rate.source}; here: {', '.join(said)}", tuned=rate.tuned and not other)
        for strategy, rate in rates.items()
    }


def record_folder(model: str, task: str = "text") -> Path:
    """Where the sweeps of a preset are: those of going on with texts by the model, the others below, by the task."""
    return RECORDS / model / ("" if task == "text" else task)


def recorded_rates(model: str, task: str = "text", corpus: str = "") -> pd.DataFrame | None:
    """The search for learning rates that is recorded for a model; None where there is none.

    Args:
        model: a preset, also by the hub id behind it; of others nothing is recorded.
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
