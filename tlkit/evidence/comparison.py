"""Many strategies and seeds into one table, from freshly loaded models, with a baseline and a control."""

import math
import os
import shlex
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from peft import get_peft_model_state_dict

from tlkit.evaluation import PerplexityResult
from tlkit.evidence.comparison_settings import ComparisonSettings
from tlkit.evidence.experiment import Experiment, allowed, load_experiment, now, run_strategy
from tlkit.evidence.finished_runs import FinishedRuns, run_all
from tlkit.evidence.learning_rates import (
    SHORT_STEPS,
    LearningRate,
    best_rates,
    learning_rates_for,
    read_rates,
    tune,
    why_no_rate,
)
from tlkit.evidence.statistics import compare_pairs, rank_intervals
from tlkit.evidence.tasks import TASKS, Measured, opening_of
from tlkit.fitting.fallback import FallbackLog
from tlkit.jobs import Job, Part
from tlkit.memory import parse_size
from tlkit.names import CONTROL, ZERO_SHOT
from tlkit.options import check
from tlkit.settings import Profile
from tlkit.strategies import STRATEGIES, load_plugin, sha256_of_own, strategies_named
from tlkit.training import TrainingResult

# What a row says of the model before training beside after it: the column, and the figure.
BEFORE = {
    "perplexity_before": "perplexity",
    "perplexity_before_low": "perplexity_low",
    "perplexity_before_high": "perplexity_high",
    "general_before": "general",
}


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found.

    Attributes:
        table: a row for each strategy; where the model's architecture does not allow one, `reason` says why.
        runs: a row for each strategy and seed.
        documents: a row for each strategy, seed and test document, with its nats and tokens.
        written: a row for each strategy, seed and answer that was written; empty where the task asks for none.
        pairs: a row for each two strategies, with the difference of their perplexities; see `compare_pairs`.
        attempts: a row for each try of a run with fallback; empty without.
        failures: from what could not run to its traceback: nothing is silently missing.
        provenance: everything that the numbers depend on.
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    documents: pd.DataFrame
    written: pd.DataFrame
    pairs: pd.DataFrame
    attempts: pd.DataFrame
    failures: dict[str, str]
    provenance: dict[str, object]


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

    Every run starts from a freshly loaded model; seeds change the order of the batches and the adapters' initial
    values. Full fine-tuning of random weights, once, is the control, no training at all the baseline. Learning rates
    that are neither given nor recorded for the model are searched for first, in a short sweep on validation text; only
    strategies with tuned rates are ranked.

    Args:
        model: preset, hub id or folder; default: `TLKIT_MODEL`, then the bundled model.
        strategies: names of `STRATEGIES`, or "classic" (the default, to classify with linear_probe before it), "peft"
            or "all", of which what the model's architecture does not allow is a row with a reason.
        profile: how many documents, epochs and seeds.
        output: a folder that each run is written to as it ends; the same comparison goes on from there. Several
            processes with one folder share the runs, and each returns the whole comparison. Default: nothing is
            written.
        progress: whether to show run k of n, its steps and the time left.

    Raises:
        ValueError: for settings that cannot be compared, or that are not those of the runs in `output`, before any
            training.
    """
    settings = settings or ComparisonSettings()
    if settings.plugin:
        load_plugin(settings.plugin)
    asked = list(TASKS[settings.task].strategies if strategies is None else strategies)
    strategies = strategies_named(asked)
    settings = replace(
        settings,
        seeds=profile.seeds if settings.seeds is None else settings.seeds,
        against=settings.against or ("full" if "full" in strategies else next(iter(strategies), "")),
    )
    _refuse(asked, strategies, settings)
    given = read_rates(settings.learning_rates) if settings.learning_rates else None
    experiment, base = load_experiment(model, profile, settings)
    strategies, impossible = allowed(asked, base.model.config, experiment.class_count)
    if settings.against in impossible:
        raise ValueError(f"against={settings.against!r}: {impossible[settings.against]}")
    texts = {name: sha256_of_own(name) for name in (*strategies, CONTROL)}
    kept = FinishedRuns(Path(output), experiment.settings, texts) if output is not None else None
    finished = kept.read() if kept else {}
    with Job(shown=progress) as job, job.part("the model before any training") as part:  # on the host
        scores = {name: experiment.score(base.model, some, part) for name, some in experiment.texts("test").items()}
        start = _measured(experiment, base.model, scores, None, part)
    sizes = {"values": 0, "total": sum(parameter.numel() for parameter in base.model.parameters())}
    untouched = {"strategy": ZERO_SHOT, "seed": 0} | start.tables
    untouched["row"] = {"strategy": ZERO_SHOT, "seed": None} | _row(start, start, **sizes)
    del base  # every run loads its own
    rates, reasons = _rates(experiment, strategies, settings, given, kept, progress)
    planned = [(name, seed) for name in strategies for seed in range(settings.seeds)] + [(CONTROL, 0)]
    runs = {
        _name(name, seed): partial(_outcome, experiment, name, seed, rates[name].value, start)
        for name, seed in planned
        if name in rates
    }
    _refuse_other_rates(finished, runs, rates)
    with Job(len(runs.keys() - finished.keys()), shown=progress) as job:
        outcomes = run_all(runs, job, kept)
    failures = {_name(*run): reasons[run[0]] for run in planned if run[0] in reasons}
    failures |= {name: outcome["failure"] for name, outcome in outcomes.items() if "failure" in outcome}
    provenance = _provenance(experiment, settings, rates, texts)
    return _collected([untouched, *outcomes.values()], experiment, rates, impossible, failures, provenance)


def _collected(
    outcomes: list[dict],
    experiment: Experiment,
    rates: dict[str, LearningRate],
    impossible: dict[str, str],
    failures: dict[str, str],
    provenance: dict[str, object],
) -> Comparison:
    """The tables of all runs; the model before any training is the first of these."""
    done = [run for run in outcomes if "row" in run]
    if doubts := {run["strategy"]: "; ".join(run["doubts"]) for run in done if run.get("doubts")}:
        provenance["doubts"] = doubts
    documents, runs = _rows(done, "documents"), pd.DataFrame([run["row"] for run in done])
    pairs = compare_pairs(documents[~documents.strategy.isin([ZERO_SHOT, CONTROL])])
    table = summary(runs, pairs, rates, provenance["against"], impossible)
    table["context"] = table.context.fillna(experiment.context).astype(int)  # what cannot be has none of its own
    for column in ("corpus", "stride", "block_size", "batch_size", "precision", "device", "against", "command"):
        table[column] = provenance[column]
    attempts = _rows(outcomes, "attempts", FallbackLog().table.columns)
    return Comparison(table, runs, documents, _rows(done, "written"), pairs, attempts, failures, provenance)


def _refuse(asked: list[str], strategies: list[str], settings: ComparisonSettings) -> None:
    """Before any work, what cannot be compared."""
    unknown = [name for name in strategies if name not in STRATEGIES]
    if unknown or not strategies:
        raise ValueError(f"strategies {unknown or strategies}: expected some of {', '.join(STRATEGIES)}")
    if twice := [name for name in asked if asked.count(name) > 1]:
        raise ValueError(f"strategy {twice[0]!r} is named twice: expected each once")
    check(settings)
    if settings.against not in strategies:
        raise ValueError(f"against={settings.against!r}: expected one of those compared, {', '.join(strategies)}")
    if settings.tune and settings.learning_rates:
        raise ValueError("learning rates that are given are not searched for: expected either of the two")
    if settings.device_memory:
        parse_size(settings.device_memory)


def _measured(
    experiment: Experiment,
    model: torch.nn.Module,
    scores: dict[str, PerplexityResult],
    log: FallbackLog | None,
    progress: Part,
) -> Measured:
    """All that is said of a model, before or after training: figures, and what it did with each document.

    Args:
        scores: on the test texts of the experiment.
        log: gets what fails, and what is done with less, where the experiment has a fallback.
    """

    def measure(rows: int) -> Measured:
        return experiment.measure(model, experiment.corpus.test, progress)

    of_task, test = experiment.evaluate(measure, model, rows=1, log=log), scores["corpus"]
    figures = {
        "perplexity": test.perplexity,
        "perplexity_low": test.low,
        "perplexity_high": test.high,
        "bits_per_byte": test.bits_per_byte,
        "context": test.context,  # less where a learned prompt takes up a part of it
        "general": scores["general"].perplexity if "general" in scores else math.nan,
    }
    documents = {"nats": list(test.document_nats), "tokens": list(test.document_tokens)}
    documents = {"document": list(range(test.documents))} | documents
    figures |= of_task.figures | {"file_bytes": saved_bytes(model)}
    return Measured(figures, {"documents": documents} | of_task.tables)


def saved_bytes(model: torch.nn.Module) -> int:
    """Count the bytes of the weights that `save_model` would write: the adapter's, or the model's, tied ones once."""
    tensors = model.state_dict(keep_vars=True)
    if hasattr(model, "peft_config"):
        tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    return sum(tensor.nbytes for tensor in {id(tensor): tensor for tensor in tensors.values()}.values())


def _rates(
    experiment: Experiment,
    strategies: list[str],
    settings: ComparisonSettings,
    given: dict[str, float] | None,
    kept: FinishedRuns | None,
    progress: bool,
) -> tuple[dict[str, LearningRate], dict[str, str]]:
    """A rate for each strategy and the control, from a short sweep where none is known; and why one has none."""
    wanted = [*strategies, CONTROL]
    rates = {} if settings.tune else learning_rates_for(experiment.model, wanted, experiment.settings, given)
    missing = [name for name in wanted if name not in rates]
    if not missing:
        return rates, {}
    record = tune(experiment, missing, kept=kept, progress=progress)
    rates |= best_rates(record, f"short sweep of {min(experiment.steps, SHORT_STEPS)} steps in this run")
    return rates, {name: why_no_rate(record, name) for name in missing if name not in rates}


def _refuse_other_rates(finished: dict[str, dict], runs: Iterable[str], rates: dict[str, LearningRate]) -> None:
    """A run that is finished is used again only at the rate of today."""
    for name in runs:
        row = finished.get(name, {}).get("row")
        if row and row["learning_rate"] != rates[row["strategy"]].value:
            raise ValueError(
                f"{name} is in the output folder, trained at a learning rate of {row['learning_rate']:g}, which is now "
                f"{rates[row['strategy']].value:g}: name another output folder, or choose the rate of before"
            )


def _name(strategy: str, seed: int) -> str:
    return f"{strategy}, seed {seed}"


def _outcome(
    experiment: Experiment, strategy: str, seed: int, rate: float, start: Measured, progress: Part
) -> dict[str, object]:
    """A run as it is kept: its row and documents or its traceback, and what it tried."""
    log, run = FallbackLog(), {"strategy": strategy, "seed": seed}
    config, outcome = replace(experiment.config, learning_rate=rate, seed=seed), dict(run)
    try:
        report, result, scores = run_strategy(
            experiment, strategy, config, experiment.texts("test"), log=log, progress=progress
        )
        end = _measured(experiment, report.model, scores, log, progress)
        sizes = {"values": report.trainable_values, "total": report.total_values}
        outcome["row"] = run | _row(start, end, **sizes, rate=rate, result=result)
        outcome["doubts"] = list(report.doubts)
        outcome |= end.tables
    except Exception:  # one run that fails must not lose the others; its traceback is part of the result
        outcome["failure"] = traceback.format_exc()
    return outcome | {"attempts": log.table.to_dict("records")}


def _row(
    before: Measured,
    after: Measured,
    *,
    values: int,
    total: int,
    rate: float = math.nan,
    result: TrainingResult | None = None,
) -> dict[str, object]:
    """The row of one run; without a result, that of the model before any training."""
    return {
        "learning_rate": rate,
        "trainable_values": values,
        "trainable_percent": 100 * values / total,
        **{column: before.figures[figure] for column, figure in BEFORE.items()},
        **after.figures,
        "seconds": result.seconds if result else 0.0,
        "tokens_per_second": result.tokens_per_second if result else math.nan,
        "samples_per_second": result.samples_per_second if result else math.nan,
        "peak_memory_mb": result.peak_memory / 1e6 if result else math.nan,
        "date": now(),
    }


def _rows(outcomes: Iterable[dict], of: str, columns: Iterable[str] = ()) -> pd.DataFrame:
    """The rows that each run has noted, under its strategy and seed; columns are of a table without any."""
    tables = []
    for run in outcomes:
        table = pd.DataFrame(run.get(of, []))
        columns = list(table) or columns
        table.insert(0, "strategy", run["strategy"])
        table.insert(1, "seed", run["seed"])
        tables += [table] if len(table) else []
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["strategy", "seed", *columns])


def summary(
    runs: pd.DataFrame,
    pairs: pd.DataFrame,
    rates: dict[str, LearningRate],
    against: str,
    impossible: dict[str, str] | None = None,
) -> pd.DataFrame:
    """One row a strategy: means, rate, difference from `against` with its interval, improvement, rank.

    Args:
        impossible: strategies that the model's architecture does not allow: rows with this reason and no figures.
    """
    grouped, impossible = runs.groupby("strategy", sort=False), impossible or {}
    table = grouped.mean(numeric_only=True).drop(columns="seed", errors="ignore")  # all None where every run failed
    table["improvement_percent"] = 100 * (1 - table["perplexity"] / table["perplexity_before"])
    used = pd.DataFrame.from_dict({name: vars(rate) for name, rate in rates.items()}, orient="index")
    columns = ["learning_rate", "rate_source", "rate_tuned", "tuning_runs"]
    table[columns] = used.reindex(table.index)  # not means: all digits stay
    table = table.join(_differences(pairs, against))
    ranked = [name for name in table.index if name in STRATEGIES and rates[name].tuned]
    table["rank"] = rank_intervals(pairs, ranked)
    table["seeds"] = grouped["seed"].count()
    table = table.reindex([*table.index, *impossible])
    table["reason"] = [impossible.get(name, "") for name in table.index]
    table = table.fillna({"trainable_values": 0, "seeds": 0}).astype({"trainable_values": int, "seeds": int})
    return table.rename_axis("strategy").reset_index()


def _differences(pairs: pd.DataFrame, against: str) -> pd.DataFrame:
    """By strategy its difference from `against`, with the interval, whichever of the pair came first."""
    columns = ["difference", "low", "high"]
    first = pairs[pairs["second"] == against].set_index("first")[columns]
    second = -pairs[pairs["first"] == against].set_index("second")[["difference", "high", "low"]]
    table = pd.concat([first, second.set_axis(columns, axis=1)])
    return table.set_axis(["difference", "difference_low", "difference_high"], axis=1)


def _provenance(
    experiment: Experiment,
    settings: ComparisonSettings,
    rates: dict[str, LearningRate],
    texts: dict[str, str | None],
) -> dict[str, object]:
    plugins = {name: digest for name, digest in texts.items() if digest}
    strategies = [name for name in texts if name != CONTROL]
    return {
        **experiment.provenance,
        "documents": str(experiment.account),
        **opening_of(experiment.task, experiment.tokenizer),
        "seeds": settings.seeds,
        "against": settings.against,
        **({} if experiment.class_count is None else {"classes": experiment.class_count}),
        "frozen_prefix": "where there is one, computed " + ("once" if experiment.keeps_prefix else "in every pass"),
        **({"strategy_sha256": plugins} if plugins else {}),
        "learning_rates": {name: f"{rate.value:g}, {rate.source}" for name, rate in rates.items()},
        "command": _command(experiment, settings, strategies),
    }


def _command(experiment: Experiment, settings: ComparisonSettings, strategies: list[str]) -> str:
    """What a shell has to be told for the same runs."""
    device = [f"TLKIT_DEVICE={os.environ['TLKIT_DEVICE']}"] if "TLKIT_DEVICE" in os.environ else []
    named = ["--model", experiment.model, "--profile", experiment.profile.name, "--strategies", ",".join(strategies)]
    options = replace(settings, corpus=experiment.corpus.name).options()
    return shlex.join([*device, "python", "-m", "tlkit", "compare", *named, *options])
