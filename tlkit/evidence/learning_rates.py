"""The learning rate of each strategy: recorded for a model, or searched for in short runs on validation text."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import pandas as pd

from tlkit.evidence.experiment import Experiment, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, run_all
from tlkit.files import write_atomically
from tlkit.jobs import SILENT, Job
from tlkit.models import PRESETS, chosen_model
from tlkit.names import CONTROL
from tlkit.settings import DATA, TrainingConfig
from tlkit.strategies import STRATEGIES

# A rate is tuned for a model, a corpus and a batch; how much of the corpus is read, and how often, is only said.
TUNED_FOR = {
    "weights_sha256": "the weights of {model}",
    "corpus_sha256": "corpus {corpus}",
    "block_size": "blocks of {block_size}",
    "batch_size": "batches of {batch_size}",
}
COARSE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # where every search begins
BUDGET = 8  # rates that are tried for each strategy, so that none is better for having been searched longer
SHORT_STEPS = 60  # at most, of a run of the search


@dataclass(frozen=True)
class LearningRate:
    """A rate and where it came from."""

    value: float  # per optimizer step, the highest after the warm-up
    source: str
    tuned: bool  # whether it was found between worse ones, for runs like these
    runs: int = 0  # that were spent on finding it


def best_rates(record: pd.DataFrame, origin: str = "swept") -> dict[str, LearningRate]:
    """Choose for each strategy the rate with the lowest mean validation perplexity over its seeds.

    A rate at the edge of those tried is not tuned, for a better one may lie outside. A strategy whose every run
    diverged or failed has no rate and is left out; `why_no_rate` says why.

    Args:
        record: of a search, a row for each run.
        origin: begins each source, such as "recorded".
    """
    profile, date = record.profile.iloc[0], str(record.date.max())[: len("2026-11-22")]
    rates, source = {}, f"{origin} for {record.model.iloc[0]} ({profile} profile, {date})"
    for strategy, runs in record.groupby("strategy", sort=False):
        perplexity = runs.validation_perplexity.fillna(math.inf)  # diverged, or failed
        means = perplexity.groupby(runs.learning_rate).mean()
        if means.empty or math.isinf(means.min()):  # also where there is none, for the architecture does not allow it
            continue
        best = float(means.idxmin())
        interior = means.index.min() < best < means.index.max()
        edge = "" if interior else "; the edge of the rates that were tried"
        rates[strategy] = LearningRate(best, source + edge, interior, len(runs))
    return rates


def why_no_rate(record: pd.DataFrame, strategy: str) -> str:
    """Say why `best_rates` has found no rate for a strategy."""
    runs = record[record.strategy == strategy]
    if runs.empty:
        return f"no learning rate was tried for {strategy}"
    if "error" in runs and runs.error.notna().any():
        return f"no learning rate for {strategy}: {runs.error.dropna().iloc[0]}"
    tried = f"{runs.learning_rate.min():g} to {runs.learning_rate.max():g}"
    return f"no learning rate for {strategy}: training diverged at every rate from {tried}"


def recorded_rates(model: str, task: str = "text") -> pd.DataFrame | None:
    """Read the search for learning rates that is recorded for a model (in data/sweeps); None where there is none.

    Args:
        model: a preset, also by the hub id behind it; of others nothing is recorded.
    """
    preset = next((name for name, entry in PRESETS.items() if model in (name, entry.source)), None)
    path = DATA / "sweeps" / str(preset) / ("" if task == "text" else task) / "rates.csv"
    return pd.read_csv(path) if path.is_file() else None


def rate_for(model: str | None, strategy: str, task: str = "text", optimizer: str = "adamw") -> LearningRate:
    """The recorded learning rate of one strategy on one model, by default the one that `chosen_model` names.

    Raises:
        ValueError: where none is recorded for model, task and optimizer: that of others would be a guess.
    """
    if optimizer != "adamw":
        raise ValueError(f"no rate is recorded for {optimizer}: expected --learning-rate with it")
    model = chosen_model(model)
    record = recorded_rates(model, task)
    if record is None:
        raise ValueError(
            f"no learning rates are recorded for {model}: give one (full fine-tuning of a pretrained model often wants "
            f"1e-5 to 1e-4, lora ten times that), or let `python -m tlkit compare --model {model}` search for them"
        )
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

    Those given never count as tuned, and those of a record only where model, corpus, batch and, for texts in blocks,
    their size are the same; the source says what differs.

    Args:
        settings: of the experiment.
    """
    rates, record = {}, recorded_rates(model, settings["task"])
    if record is not None:
        # Examples are padded to the longest of a run, so their width differs with the documents and decides nothing.
        decisive = {key: words for key, words in TUNED_FOR.items() if key != "block_size" or settings["task"] == "text"}
        here = {"model": model, **settings}
        other = [words.format_map(here) for key, words in decisive.items() if record[key].iloc[0] != settings[key]]
        profile = [f"profile {settings['profile']}"] if record.profile.iloc[0] != settings["profile"] else []
        differs = f"; here: {', '.join(other + profile)}" if other or profile else ""
        for strategy, rate in best_rates(record, "recorded").items():
            rates[strategy] = replace(rate, source=rate.source + differs, tuned=rate.tuned and not other)
    rates |= {name: LearningRate(value, "given", tuned=False) for name, value in (given or {}).items()}
    return {strategy: rates[strategy] for strategy in strategies if strategy in rates}


def read_rates(given: str) -> dict[str, float]:
    """Read learning rates as a command line gives them: "full=1e-4,lora=1e-3".

    Raises:
        ValueError: where a strategy is unknown, or a rate is no number above 0.
    """
    rates = {}
    for strategy, _, value in (words.partition("=") for words in given.split(",")):
        if strategy not in (*STRATEGIES, CONTROL):
            expected = ", ".join([*STRATEGIES, CONTROL])
            raise ValueError(f"learning rates: strategy {strategy!r} is unknown: expected some of {expected}")
        rates[strategy] = float(pd.to_numeric(value, errors="coerce"))
        if not 0 < rates[strategy] < math.inf:
            raise ValueError(f"learning rates: {strategy}={value}: expected a number above 0")
    return rates


def find_rates(
    experiment: Experiment,
    strategies: list[str],
    given: Mapping[str, float],
    kept: FinishedRuns | None = None,
    progress: bool = False,
) -> tuple[dict[str, LearningRate], dict[str, str]]:
    """A rate for each strategy, from a short search where none is known, which says first what it costs.

    Returns:
        The rates, and why a strategy has none.
    """
    rates = {}
    if not experiment.options.tune:
        rates = learning_rates_for(experiment.model, strategies, experiment.settings, given)
    missing = [name for name in strategies if name not in rates]
    if not missing:
        return rates, {}
    steps = min(experiment.steps, SHORT_STEPS)
    print(
        f"No tuned learning rates for {', '.join(missing)} on {experiment.model} with {experiment.data.used.name}: "
        f"a short sweep on validation text comes first, about {len(missing) * BUDGET} runs of {steps} steps. Learning "
        "rates that are given (--learning-rates) save it.",
        file=sys.stderr,
        flush=True,
    )
    short = replace(experiment.config, epochs=experiment.config.epochs * steps / experiment.steps)
    record = tune(experiment, missing, short, kept=kept, progress=progress)
    rates |= best_rates(record, f"short sweep of {steps} steps in this run")
    return rates, {name: why_no_rate(record, name) for name in missing if name not in rates}


def tune(
    experiment: Experiment,
    strategies: list[str],
    config: TrainingConfig,
    *,
    seeds: int = 1,
    kept: FinishedRuns | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Search for the learning rate of each strategy on validation text.

    Args:
        config: of each run, but for its rate and seed.
        kept: where finished runs are kept and found again; the record is written there as `rates.csv`.

    Returns:
        The record, for `best_rates`; a run that was not possible says why in the column `error`.
    """
    record = pd.DataFrame(columns=["strategy", "learning_rate", "validation_perplexity", "error"])
    with Job(len(strategies) * BUDGET * seeds, shown=progress) as job:
        while wanted := next_rates(record, strategies):
            trials = {}
            for (strategy, rate), seed in product(wanted.items(), range(seeds)):
                trial = replace(config, learning_rate=rate, seed=seed)
                name = f"{strategy}, learning rate {rate:g}, seed {seed}"
                trials[name] = partial(run_trial, experiment, strategy, trial)
            record = pd.DataFrame([*record.to_dict("records"), *run_all(trials, job, kept).values()])
    if kept:
        with kept.claimed("rates") as ours:  # of several processes that have the same record, one writes it
            if ours:
                write_atomically(kept.output / "rates.csv", partial(record.to_csv, index=False))
    return record


def next_rates(record: pd.DataFrame, strategies: Iterable[str]) -> dict[str, float]:
    """The rate that each strategy is to be tried with next; those whose search is over are left out."""
    wanted = {}
    for strategy in strategies:
        runs = record[record.strategy == strategy]
        rate = next_rate(runs.groupby("learning_rate").validation_perplexity.mean().fillna(math.inf).to_dict())
        if rate is not None and runs.error.isna().all():  # else it cannot run at all
            wanted[strategy] = rate
    return wanted


def next_rate(scores: Mapping[float, float]) -> float | None:
    """Say which rate to try next: first one a decade, then closer around the best, `BUDGET` in all.

    The answer depends on the scores alone, so a search that was stopped goes on as if it had not been.

    Args:
        scores: the mean validation perplexity of each rate tried so far, infinite where training diverged.

    Returns:
        A rate: of `COARSE`, then beyond the lowest or the highest where that is the best, else between the best and
        the neighbour that is further away. None where the budget is spent.
    """
    missing = [rate for rate in COARSE if rate not in scores]
    if missing and set(scores) <= set(COARSE):
        return missing[0]
    if len(scores) >= BUDGET:
        return None
    tried = sorted(scores)
    place = tried.index(min(tried, key=scores.get))
    best = tried[place]
    if best == tried[0]:
        rate = best / 10
    elif best == tried[-1]:
        rate = best * 10
    else:
        beside = (tried[place - 1], tried[place + 1])
        rate = math.sqrt(best * max(beside, key=lambda other: round(abs(math.log10(other / best)), 2)))
    return float(f"{rate:.3g}")  # three digits, for people and for the names of runs


def run_trial(
    experiment: Experiment, strategy: str, config: TrainingConfig, progress: Job = SILENT
) -> dict[str, object]:
    """Train by a strategy and score it on validation texts, as a row of a record.

    It has perplexity on the corpus and on general text, the loss of the last steps in nats a token, and what the task
    measures beside. A run that diverges scores infinity, and one that cannot run says why in `error`.
    """
    scores = dict.fromkeys(("validation_perplexity", "general_perplexity", "training_loss"), math.inf)
    error = None
    try:
        _, result, figures, _ = run_strategy(experiment, strategy, config, "validation", progress=progress)
        last = float(result.history.loss.tail(max(1, len(result.history) // 10)).mean())
        scores = {
            "validation_perplexity": figures.pop("perplexity"),
            "general_perplexity": figures.pop("general"),
            "training_loss": last,
            **figures,
        }
    except FloatingPointError:
        pass  # a rate that is too high is a finding, and infinity is its name
    except Exception as problem:  # a strategy that cannot run on this model must not keep the others from running
        error = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    row = {"strategy": strategy, "learning_rate": config.learning_rate, "seed": config.seed}
    return row | scores | experiment.provenance | {"epochs": config.epochs, "error": error}
