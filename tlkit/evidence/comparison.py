"""Strategies and seeds in one table, with a baseline and a control."""

import math
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd

from tlkit.devices import probe
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, allowed, load_experiment, now, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, run_all
from tlkit.evidence.learning_rates import LearningRate, checked_rates, find_rates
from tlkit.evidence.statistics import compare_pairs, rank_intervals
from tlkit.evidence.tasks import TASKS
from tlkit.fitting.fallback import FallbackLog
from tlkit.jobs import Job
from tlkit.memory import parse_size
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.options import check
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES, check_strategy, load_plugin, sha256_of_own, strategies_named


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found."""

    table: pd.DataFrame  # a row for each strategy; `reason` says why the model's architecture does not allow one
    runs: pd.DataFrame  # a row for the untouched model, and for each strategy and seed
    documents: pd.DataFrame  # nats and tokens of each strategy, seed and test document
    pairs: pd.DataFrame  # see `compare_pairs`
    attempts: pd.DataFrame  # of runs with fallback
    failures: dict[str, str]  # tracebacks or reasons, by what could not run
    provenance: dict[str, object]  # what the numbers depend on


def compare(
    model: str | None = None,
    strategies: Iterable[str] | None = None,
    *,
    profile: Profile,
    settings: ComparisonSettings | None = None,
    output: str | Path | None = None,
    progress: bool = False,
) -> Comparison:
    """Adapt a model by each strategy, once for every seed, and measure what each gained and forgot.

    Seeds change the order of the batches and the adapters' initial values. Full fine-tuning of random weights, once, is
    the control, no training the baseline. Learning rates that are neither given nor recorded for the model are searched
    for first, in a short sweep on validation text; only strategies with tuned rates are ranked.

    Args:
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        strategies: names of `STRATEGIES`, or "classic" (the default, to classify with linear_probe before it), "peft"
            or "all"; what the architecture does not allow of these is a row with a reason.
        profile: how many documents, epochs and seeds.
        output: a folder for runs as they end, from which the same comparison goes on. Processes with one folder share
            the runs, and each returns the whole comparison.
        progress: show run k of n, its steps and the time left.
    """
    settings = settings or ComparisonSettings()
    check(settings)
    load_plugin(settings.plugin)
    asked = list(TASKS[settings.task].strategies if strategies is None else strategies)
    strategies = strategies_named(asked)
    settings = replace(
        settings,
        seeds=profile.seeds if settings.seeds is None else settings.seeds,
        against=settings.against or ("full" if "full" in strategies else next(iter(strategies), "")),
        learning_rates=checked_rates(settings.learning_rates),
    )
    _refuse(strategies, settings)
    experiment, base = load_experiment(model, profile, settings)
    strategies, impossible = allowed(asked, base.model.config, experiment.data.class_count)
    if settings.against in impossible:
        raise ValueError(f"against={settings.against!r}: {impossible[settings.against]}")
    digests = {name: sha256_of_own(name) for name in (*strategies, CONTROL)}
    kept = FinishedRuns(Path(output), experiment.settings, digests) if output is not None else None
    finished = kept.read() if kept else {}
    with Job(shown=progress) as job, job.stage("the model before any training") as stage:
        before, scored = experiment.measure(base.model, "test", probe("cpu"), progress=stage)
    untouched = {"strategy": ZERO_SHOT, "seed": 0, "documents": scored, "row": _row(ZERO_SHOT, None, before, before)}
    del base  # every run loads its own
    rates, failures = find_rates(experiment, [*strategies, CONTROL], kept, progress)
    runs = {}
    for name, rate in rates.items():
        for seed in range(1 if name == CONTROL else settings.seeds):
            runs[f"{name} at {rate.value}, seed {seed}"] = partial(_outcome, experiment, name, seed, rate.value, before)
    with Job(len(runs.keys() - finished.keys()), shown=progress) as job:
        outcomes = run_all(runs, job, kept)
    failures |= {name: outcome["failure"] for name, outcome in outcomes.items() if "failure" in outcome}
    done = [untouched, *(outcome for outcome in outcomes.values() if "row" in outcome)]
    documents = _rows(done, "documents")
    pairs = compare_pairs(documents[~documents.strategy.isin([ZERO_SHOT, CONTROL])])
    provenance = _provenance(experiment, rates, digests, done)
    rows = pd.DataFrame([run["row"] for run in done])
    table = summary(rows, pairs, rates, settings.against, impossible)
    table["context"] = table.context.fillna(provenance["context"]).astype(int)  # none of the impossible
    for column in ("corpus", "stride", "block_size", "batch_size", "precision", "device", "against"):
        table[column] = provenance[column]
    attempts = _rows(outcomes.values(), "attempts")
    return Comparison(table, rows, documents, pairs, attempts, failures, provenance)


def _refuse(strategies: list[str], settings: ComparisonSettings) -> None:
    for name in strategies:
        check_strategy(name, {})
    if settings.against not in strategies:
        raise ValueError(f"against={settings.against!r}: expected one of those compared, {', '.join(strategies)}")
    if settings.tune and settings.learning_rates:
        raise ValueError("learning_rates and tune: expected one of the two")
    if settings.device_memory:
        parse_size(settings.device_memory)


def _outcome(
    experiment: Experiment, strategy: str, seed: int, rate: float, before: dict[str, float], progress: Job
) -> dict[str, object]:
    """A run's row and documents or traceback, and its attempts, as they are kept."""
    log, outcome = FallbackLog(), {"strategy": strategy, "seed": seed}
    config = replace(experiment.config, learning_rate=rate, seed=seed)
    try:
        report, result, figures, rows = run_strategy(experiment, strategy, config, "test", log=log, progress=progress)
        outcome["documents"] = rows
        outcome["row"] = _row(
            strategy,
            seed,
            before,
            figures,
            learning_rate=rate,
            trainable_parameters=report.trainable_parameters,
            trainable_percent=report.percent,
            seconds=result.seconds,
            tokens_per_second=result.tokens / result.seconds,
            samples_per_second=result.history.samples.sum() / result.seconds,
            peak_memory_mb=result.peak_memory / 1e6,
        )
        computed_in = {attempt.precision for attempt in log.attempts if attempt.steps_done}
        changed = [f"computed in {' and '.join(sorted(computed_in))}, for want of memory"]
        outcome["doubts"] = [*report.doubts, *(changed if computed_in - {experiment.precision} else [])]
    except Exception:  # the others go on
        outcome["failure"] = traceback.format_exc()
    return outcome | {"attempts": log.table.to_dict("records")}


def _row(
    strategy: str, seed: int | None, before: dict[str, float], figures: dict[str, float], **trained: float
) -> dict[str, object]:
    """The row of one run, or without `trained` of the untouched model."""
    return {
        "strategy": strategy,
        "seed": seed,
        "learning_rate": math.nan,
        "trainable_parameters": 0,
        "trainable_percent": 0.0,
        "perplexity_before": before["perplexity"],
        "general_before": before["general"],
        **figures,
        "seconds": 0.0,
        "tokens_per_second": math.nan,
        "samples_per_second": math.nan,
        "peak_memory_mb": math.nan,
        "date": now(),
    } | trained


def _rows(outcomes: Iterable[dict], of: str) -> pd.DataFrame:
    """What runs have under a name, as one table with strategy and seed."""
    rows = []
    for run in outcomes:
        noted = pd.DataFrame(run.get(of, []))
        rows += [{"strategy": run["strategy"], "seed": run["seed"]} | row for row in noted.to_dict("records")]
    return pd.DataFrame(rows)


def summary(
    runs: pd.DataFrame,
    pairs: pd.DataFrame,
    rates: dict[str, LearningRate],
    against: str,
    impossible: dict[str, str],
) -> pd.DataFrame:
    """One row a strategy: means, rate, difference from `against` with its interval, improvement, rank.

    Args:
        impossible: strategies that the architecture does not allow, with reasons.
    """
    grouped = runs.groupby("strategy", sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed", errors="ignore")  # None where every run failed
    table["improvement_percent"] = 100 * (1 - table["perplexity"] / table["perplexity_before"])
    used = pd.DataFrame.from_dict({name: vars(rate) for name, rate in rates.items()}, orient="index")
    columns = ["learning_rate", "rate_source", "rate_tuned", "tuning_runs"]
    table[columns] = used.reindex(table.index)  # not means: all digits stay
    turned = pairs.rename(columns={"first": "second", "second": "first"})
    both = pd.concat([pairs, turned.assign(difference=-pairs.difference, low=-pairs.high, high=-pairs.low)])
    differences = both[both["second"] == against].set_index("first")[["difference", "low", "high"]]
    table = table.join(differences.rename(columns={"low": "difference_low", "high": "difference_high"}))
    ranked = [name for name in table.index if name in STRATEGIES and rates[name].tuned]
    table["rank"] = rank_intervals(pairs, ranked)
    table["seeds"] = grouped["seed"].count()
    table = table.reindex([*table.index, *impossible])
    table["reason"] = [impossible.get(name, "") for name in table.index]
    table = table.fillna({"trainable_parameters": 0, "seeds": 0}).astype({"trainable_parameters": int, "seeds": int})
    return table.rename_axis("strategy").reset_index()


def _provenance(
    experiment: Experiment, rates: dict[str, LearningRate], digests: dict[str, str | None], done: list[dict]
) -> dict[str, object]:
    options, classes = experiment.options, experiment.data.class_count
    custom = {name: digest for name, digest in digests.items() if digest}
    doubts = {run["strategy"]: "; ".join(run["doubts"]) for run in done if run.get("doubts")}
    return {
        **experiment.provenance,
        **experiment.notes,
        "documents": str(experiment.notes["documents"]),
        "seeds": options.seeds,
        "against": options.against,
        **({} if classes is None else {"classes": classes}),
        **({"strategy_sha256": custom} if custom else {}),
        "learning_rates": {name: f"{rate.value:g}, {rate.source}" for name, rate in rates.items()},
        **({"doubts": doubts} if doubts else {}),
    }
