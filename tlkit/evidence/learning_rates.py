"""The learning rate of each strategy: recorded for a model, or searched for on validation text."""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd

from tlkit.evidence.experiment import Experiment, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, run_all
from tlkit.files import write_atomically
from tlkit.jobs import SILENT, Job
from tlkit.names import CONTROL
from tlkit.options import checked
from tlkit.presets import PRESETS, chosen_model
from tlkit.settings import DATA, TrainingConfig
from tlkit.strategies import STRATEGIES

# A rate is tuned for these; that another profile reads more of the corpus is only said.
TUNED_FOR = {
    "weights_sha256": "the weights of {model}",
    "corpus_sha256": "corpus {corpus}",
    "block_size": "blocks of {block_size}",
    "batch_size": "batches of {batch_size}",
}
COARSE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # where every search begins
BUDGET = 8  # rates tried for each strategy, the same for all
SHORT_STEPS = 60  # at most, of a run of the search


@dataclass(frozen=True)
class LearningRate:
    """A rate, where it comes from, and whether it was tuned."""

    value: float  # per optimizer step, the highest after the warm-up
    source: str
    tuned: bool  # found between worse ones, for runs like these
    runs: int = 0  # that found it


def best_rates(record: pd.DataFrame, origin: str = "swept") -> tuple[dict[str, LearningRate], dict[str, str]]:
    """Choose the rate with the lowest mean validation perplexity over seeds; and say why a strategy has none.

    A rate at the edge of those tried is not tuned, for a better one may lie outside.

    Args:
        record: a row for each run of a search.
    """
    profile, date = record.profile.iloc[0], str(record.date.max())[: len("2026-11-22")]
    rates, reasons, source = {}, {}, f"{origin} for {record.model.iloc[0]} ({profile} profile, {date})"
    for strategy, runs in record.groupby("strategy", sort=False):
        perplexity = runs.validation_perplexity.fillna(math.inf)  # diverged, or failed
        means = perplexity.groupby(runs.learning_rate).mean()
        if means.empty or math.isinf(means.min()):
            tried = f"training diverged at every rate from {means.index.min():g} to {means.index.max():g}"
            reason = next(iter(runs.error.dropna() if "error" in runs else ()), tried)
            reasons[strategy] = f"no learning rate for {strategy}: {reason}"
            continue
        best = float(means.idxmin())
        interior = means.index.min() < best < means.index.max()
        edge = "" if interior else "; the edge of the rates that were tried"
        rates[strategy] = LearningRate(best, source + edge, interior, len(runs))
    return rates, reasons


def recorded_rates(model: str, task: str = "text") -> pd.DataFrame | None:
    """Read what data/sweeps has for a preset, also by its hub id."""
    preset = next((name for name, entry in PRESETS.items() if model in (name, entry.source)), None)
    path = DATA / "sweeps" / str(preset) / ("" if task == "text" else task) / "rates.csv"
    return pd.read_csv(path) if path.is_file() else None


def rate_for(model: str | None, strategy: str, task: str = "text", optimizer: str = "adamw") -> LearningRate:
    """The rate that is recorded for a strategy on a model; ValueError without one."""
    if optimizer != "adamw":
        raise ValueError(f"no rate is recorded for {optimizer}: expected --learning-rate with it")
    model = chosen_model(model)
    record = recorded_rates(model, task)
    if record is None:
        raise ValueError(
            f"no learning rates are recorded for {model}: give one (for full often 1e-5 to 1e-4, for lora ten times "
            f"that), or search with `python -m tlkit compare --model {model}`"
        )
    rates, reasons = best_rates(record, "recorded")
    if strategy not in rates:
        raise ValueError(reasons.get(strategy, f"no learning rate is recorded for {strategy} on {model}"))
    return rates[strategy]


def learning_rates_for(
    model: str, strategies: Iterable[str], settings: Mapping[str, object], given: Mapping[str, float]
) -> dict[str, LearningRate]:
    """Find the learning rates that are given or else recorded for the model.

    A given one is not tuned; a recorded one only where `TUNED_FOR` is as in `settings`, else its source says what is
    not.
    """
    rates, record = {}, recorded_rates(model, settings["task"])
    if record is not None:
        # Examples are padded to the longest of a run, which decides nothing.
        decisive = {key: words for key, words in TUNED_FOR.items() if key != "block_size" or settings["task"] == "text"}
        here = {"model": model, **settings}
        other = [words.format_map(here) for key, words in decisive.items() if record[key].iloc[0] != settings[key]]
        profile = [f"profile {settings['profile']}"] if record.profile.iloc[0] != settings["profile"] else []
        differs = f"; here: {', '.join(other + profile)}" if other or profile else ""
        for strategy, rate in best_rates(record, "recorded")[0].items():
            rates[strategy] = replace(rate, source=rate.source + differs, tuned=rate.tuned and not other)
    rates |= {name: LearningRate(value, "given", tuned=False) for name, value in given.items()}
    return {strategy: rates[strategy] for strategy in strategies if strategy in rates}


def checked_rates(given: Mapping[str, object]) -> dict[str, float]:
    """Rates by strategy as floats; ValueError for unknown names and values."""
    if unknown := [name for name in given if name not in (*STRATEGIES, CONTROL)]:
        raise ValueError(f"learning rate of {unknown[0]!r}: expected one of {', '.join([*STRATEGIES, CONTROL])}")
    setting = TrainingConfig.__dataclass_fields__["learning_rate"]
    return {name: checked(setting, rate, f"learning rate of {name}") for name, rate in given.items()}


def find_rates(
    experiment: Experiment, strategies: list[str], kept: FinishedRuns | None = None, progress: bool = False
) -> tuple[dict[str, LearningRate], dict[str, str]]:
    """A rate for each strategy, searched for where none is known; and why a strategy has none."""
    rates, options = {}, experiment.options
    if not options.tune:
        rates = learning_rates_for(experiment.model, strategies, experiment.settings, options.learning_rates)
    missing = [name for name in strategies if name not in rates]
    if not missing:
        return rates, {}
    steps = min(experiment.steps, SHORT_STEPS)
    print(
        f"No tuned learning rates for {', '.join(missing)} on {experiment.model} with {experiment.data.used.name}: "
        f"a short sweep on validation text comes first, about {len(missing) * BUDGET} runs of {steps} steps",
        file=sys.stderr,
    )
    short = replace(experiment.config, epochs=experiment.config.epochs * steps / experiment.steps)
    record = tune(experiment, missing, short, kept=kept, progress=progress)
    best, reasons = best_rates(record, f"short sweep of {steps} steps in this run")
    rates |= best
    return {name: rates[name] for name in strategies if name in rates}, reasons


def tune(
    experiment: Experiment,
    strategies: list[str],
    config: TrainingConfig,
    *,
    seeds: int = 1,
    kept: FinishedRuns | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Search for the learning rate of each strategy on validation text; returns a record for `best_rates`.

    Args:
        config: of each run, but for its rate and seed.
        kept: where finished runs are found again, and `rates.csv` is written.
    """
    record = pd.DataFrame(columns=["strategy", "learning_rate", "validation_perplexity", "error"])
    with Job(len(strategies) * BUDGET * seeds, shown=progress) as job:
        while True:
            trials = {}
            for strategy in strategies:
                runs = record[record.strategy == strategy]
                means = runs.groupby("learning_rate").validation_perplexity.mean().fillna(math.inf)
                rate = next_rate(means.to_dict()) if runs.error.isna().all() else None  # else it cannot run
                for seed in range(seeds if rate else 0):
                    trial = replace(config, learning_rate=rate, seed=seed)
                    name = f"{strategy}, learning rate {rate:g}, seed {seed}"
                    trials[name] = partial(run_trial, experiment, strategy, trial)
            if not trials:
                break
            record = pd.DataFrame([*record.to_dict("records"), *run_all(trials, job, kept).values()])
    if kept:
        with kept.claimed("rates") as ours:  # one of several processes writes it
            if ours:
                write_atomically(kept.output / "rates.csv", partial(record.to_csv, index=False))
    return record


def next_rate(scores: Mapping[float, float]) -> float | None:
    """Say which rate to try next: first one a decade, then closer around the best; None where `BUDGET` is spent.

    It depends on the scores alone, so that a search may be stopped and go on.

    Args:
        scores: the mean validation perplexity of each rate tried, infinite where training diverged.
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
    return float(f"{rate:.3g}")  # for the names of runs


def run_trial(
    experiment: Experiment, strategy: str, config: TrainingConfig, progress: Job = SILENT
) -> dict[str, object]:
    """Train and score on validation texts; a run that diverges scores infinity, one that fails says why in `error`."""
    scores, error = dict.fromkeys(("validation_perplexity", "general_perplexity"), math.inf), None
    try:
        _, _, figures, _ = run_strategy(experiment, strategy, config, "validation", progress=progress)
        scores = {
            "validation_perplexity": figures.pop("perplexity"),
            "general_perplexity": figures.pop("general"),
            **figures,
        }
    except FloatingPointError:
        pass  # a rate that is too high is a finding
    except Exception as problem:  # others may run
        error = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    row = {"strategy": strategy, "learning_rate": config.learning_rate, "seed": config.seed}
    return row | scores | experiment.provenance | {"epochs": config.epochs, "error": error}
