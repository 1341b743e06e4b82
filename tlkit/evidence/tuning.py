"""The search for learning rates: short runs that differ in one setting, judged on validation text alone."""

import datetime
import math
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

import pandas as pd
import torch

from tlkit.evidence.experiment import Experiment, run_all, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns
from tlkit.evidence.learning_rates import TUNED_FOR
from tlkit.examples import Batch
from tlkit.files import write_atomically
from tlkit.jobs import SILENT, Job, Part
from tlkit.settings import TrainingConfig

COARSE = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)  # where every search begins
BUDGET = 8  # rates that are tried for each strategy, so that none is better for having been searched longer
SHORT_STEPS = 60  # at most, of a run of the search
FOUND = ("validation_perplexity", "general_perplexity", "training_loss")  # by a trial
COLUMNS = ("trial", "strategy", "learning_rate", "seed", "validation_perplexity", "error")  # of a record, among others


@dataclass(frozen=True)
class Trial:
    """One training run, of so many `steps` where they are given, and else of so many epochs."""

    strategy: str
    learning_rate: float
    epochs: float = 1
    steps: int | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        """Its settings in one line, so that a record says what was done already."""
        return " ".join(f"{key}={value}" for key, value in asdict(self).items() if value is not None)


def tune(
    experiment: Experiment,
    strategies: list[str],
    *,
    kept: FinishedRuns | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Search for the learning rates of one model in short runs on validation text, and say first what it costs.

    Args:
        experiment: model, text, blocks and batch that the rates are for.
        strategies: those to search for.
        kept: where finished trials are kept and found again; the record is written there as `rates.csv`.
        progress: whether to show run k of n, its steps and the time left.

    Returns:
        The record, for `best_rates`; a trial that could not run says why in the column `error`.
    """
    steps, count = min(experiment.steps, SHORT_STEPS), len(strategies) * BUDGET
    print(
        f"No tuned learning rates for {', '.join(strategies)} on {experiment.model} with {experiment.corpus.name}: "
        f"a short sweep on validation text comes first, about {count} runs of {steps} steps. Learning rates that are "
        "given (--learning-rates) save it.",
        file=sys.stderr,
        flush=True,
    )
    short = Trial("", 0.0, experiment.profile.epochs, steps if steps < experiment.steps else None)
    record = pd.DataFrame(columns=COLUMNS)
    with Job(count, shown=progress) as job:
        while trials := rate_trials(record, strategies, 1, short):
            rows = run_all({trial.name: partial(row_of, trial, experiment) for trial in trials}, job, kept)
            record = pd.DataFrame([*record.to_dict("records"), *rows.values()])
    if kept:
        with kept.claimed("rates") as ours:  # of several processes that have the same record, one writes it
            if ours:
                write_atomically(kept.output / "rates.csv", partial(record.to_csv, index=False))
    return record


def rate_trials(record: pd.DataFrame, strategies: Iterable[str], seeds: int, like: Trial) -> list[Trial]:
    """Say which trials the search for the best rates wants next; none where it is over.

    Args:
        record: the trials done so far.
        strategies: those to search for, each by `next_rate`.
        like: what all trials have in common.
    """
    wanted = []
    for strategy in strategies:
        part = record[record.strategy == strategy]
        if part.error.notna().any():
            continue  # it cannot run at all
        rates = part.groupby("learning_rate").validation_perplexity
        begun = [rate for rate, count in rates.size().items() if count < seeds]
        rate = begun[0] if begun else next_rate(rates.mean().to_dict())
        if rate is not None:
            trials = [replace(like, strategy=strategy, learning_rate=float(rate), seed=seed) for seed in range(seeds)]
            wanted += [trial for trial in trials if trial.name not in set(part.trial)]
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
    return float(f"{rate:.3g}")  # three digits, for people and for the names of trials


def run_trial(
    trial: Trial, experiment: Experiment, *, blocks: Batch | None = None, progress: Part = SILENT
) -> dict[str, float]:
    """Train as a trial says, and score it on validation texts; a run that diverges scores infinity.

    Args:
        trial: strategy, rate, length and seed.
        experiment: model, texts, blocks and window.
        blocks: what to train on, where it is not what the experiment has.

    Returns:
        Perplexity on the validation documents of the corpus and on general ones, the loss of the last steps in nats a
        token, and what the task measures beside.
    """
    blocks = experiment.blocks if blocks is None else blocks
    batch, validation = experiment.batch_size, experiment.corpus.validation
    epochs = trial.epochs if trial.steps is None else trial.steps / math.ceil(len(blocks) / batch)
    config = TrainingConfig(trial.learning_rate, epochs=epochs, batch_size=batch, seed=trial.seed)
    texts = {"corpus": validation, "general": experiment.general.validation}
    texts = {name: documents for name, documents in texts.items() if documents}
    try:
        report, result, scores = run_strategy(experiment, trial.strategy, config, blocks, texts, progress=progress)
    except FloatingPointError:
        return dict.fromkeys(FOUND, math.inf)  # a rate that is too high is a finding, and infinity is its name
    tail = result.history.loss.tail(max(1, len(result.history) // 10)).mean()
    general = scores["general"].perplexity if "general" in scores else math.nan
    figures = dict(zip(FOUND, (scores["corpus"].perplexity, general, float(tail)), strict=True))
    figures = {name: math.inf if math.isnan(value) and name != FOUND[1] else value for name, value in figures.items()}
    return figures | experiment.measure(report.model, validation, progress).figures


def row_of(
    trial: Trial, experiment: Experiment, progress: Part = SILENT, blocks: Batch | None = None
) -> dict[str, object]:
    """Carry out a trial as `run_trial` does, for a record: its settings, what was found or in `error` why nothing was,
    and where and when."""
    scores, error = dict.fromkeys(FOUND, math.inf), None
    try:
        scores = run_trial(trial, experiment, blocks=blocks, progress=progress)
    except Exception as problem:  # a strategy that cannot run on this model must not keep the others from running
        error = f"{type(problem).__name__}: {(str(problem).splitlines() or [''])[0]}"
    device = experiment.device()
    return {
        "trial": trial.name,
        **asdict(trial),
        **scores,
        "model": experiment.model,
        "profile": experiment.profile.name,
        "device": f"{device.kind}: {device.name}",
        "precision": experiment.precision,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        **{name: experiment.settings[name] for name in (*TUNED_FOR, "corpus", "context", "stride")},
        "error": error,
    }
