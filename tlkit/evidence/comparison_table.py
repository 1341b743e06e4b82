"""From the outcomes of runs to the tables of a comparison."""

import datetime
import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from tlkit.evaluation import PerplexityResult
from tlkit.evidence.answers import ANSWER_COLUMNS, accuracy_differences
from tlkit.evidence.in_use import InUse
from tlkit.evidence.learning_rates import LearningRate
from tlkit.evidence.statistics import rank_intervals, seed_intervals
from tlkit.names import QUESTION_SETS, ZERO_SHOT
from tlkit.strategies import STRATEGIES
from tlkit.training import TrainingResult


@dataclass(frozen=True)
class Start:
    """The model before any training: its score on each text, how it is in use, and its size in values."""

    scores: dict[str, PerplexityResult]
    in_use: InUse
    total_values: int


def run_row(
    strategy: str,
    seed: int | None,
    values: int,
    start: Start,
    scores: dict[str, PerplexityResult],
    in_use: InUse,
    rate: float = math.nan,
    total: int | None = None,
    result: TrainingResult | None = None,
) -> dict[str, object]:
    """The row of one run; without a result, that of the model before any training."""
    before, after = start.scores["test"], scores["test"]
    return {
        "strategy": strategy,
        "seed": seed,
        "learning_rate": rate,
        "trainable_values": values,
        "trainable_percent": 100 * values / (total or start.total_values),
        "perplexity_before": before.perplexity,
        "perplexity_before_low": before.low,
        "perplexity_before_high": before.high,
        "perplexity": after.perplexity,
        "perplexity_low": after.low,
        "perplexity_high": after.high,
        "bits_per_byte": after.bits_per_byte,
        "context": after.context,  # less where a learned prompt takes up a part of it
        "general_before": start.scores["general"].perplexity if "general" in scores else math.nan,
        "general": scores["general"].perplexity if "general" in scores else math.nan,
        **_accuracies(start.in_use, in_use),
        **in_use.measured.figures,
        "file_bytes": in_use.file_bytes,
        "generate_seconds": in_use.generate_seconds,
        "seconds": result.seconds if result else 0.0,
        "tokens_per_second": result.tokens_per_second if result else math.nan,
        "samples_per_second": result.samples_per_second if result else math.nan,
        "peak_memory_mb": result.peak_memory / 1e6 if result else math.nan,
        "date": now(),
    }


def _accuracies(before: InUse, after: InUse) -> dict[str, float]:
    """Accuracy on each set of questions with its interval, NaN where none were asked."""
    columns = {}
    for name in QUESTION_SETS:
        answers = after.answers.get(name)
        low, high = answers.interval if answers else (math.nan, math.nan)
        columns[f"{name}_accuracy_before"] = before.answers[name].accuracy if answers else math.nan
        columns[f"{name}_accuracy"] = answers.accuracy if answers else math.nan
        columns[f"{name}_accuracy_low"], columns[f"{name}_accuracy_high"] = low, high
    return columns


def per_document(scores: dict[str, PerplexityResult]) -> dict[str, list]:
    """Nats and tokens of every test document, as a run's outcome keeps them."""
    return {"nats": list(scores["test"].document_nats), "tokens": list(scores["test"].document_tokens)}


def document_rows(outcome: dict) -> pd.DataFrame:
    """The documents of a run, a row each."""
    documents = pd.DataFrame(outcome["documents"]).rename_axis("document").reset_index()
    return documents.assign(strategy=outcome["strategy"], seed=outcome["seed"])[
        ["strategy", "seed", "document", "nats", "tokens"]
    ]


def answer_table(outcomes: Iterable[dict]) -> pd.DataFrame:
    """The answers of all runs, a row for each strategy, seed and question."""
    parts = [pd.DataFrame(run["answers"]).assign(strategy=run["strategy"], seed=run["seed"]) for run in outcomes]
    return pd.concat(parts, ignore_index=True)[ANSWER_COLUMNS]


def noted_rows(outcomes: Iterable[dict], of: str, columns: Iterable[str] = ()) -> pd.DataFrame:
    """The rows that each run has noted, under its strategy and seed."""
    rows = [row | {key: run[key] for key in ("strategy", "seed")} for run in outcomes for row in run.get(of, ())]
    return pd.DataFrame(rows, columns=None if rows else [*columns, "strategy", "seed"])


def summary(
    runs: pd.DataFrame, pairs: pd.DataFrame, answers: pd.DataFrame, rates: dict[str, LearningRate], against: str
) -> pd.DataFrame:
    """One row a strategy: means, rate, intervals over seeds, differences from `against`, improvement, rank.

    Accuracies are compared with those of the untouched model, on the same questions.
    """
    grouped = runs.groupby("strategy", sort=False)
    table = grouped.mean(numeric_only=True).drop(columns="seed", errors="ignore")  # all None where every run failed
    table["trainable_values"] = table["trainable_values"].astype(int)
    table["improvement_percent"] = 100 * (1 - table["perplexity"] / table["perplexity_before"])
    intervals = seed_intervals(runs[runs.strategy != ZERO_SHOT])
    table["perplexity_seeds_low"], table["perplexity_seeds_high"] = intervals.low, intervals.high
    used = pd.DataFrame.from_dict({name: vars(rate) for name, rate in rates.items()}, orient="index")
    columns = ["learning_rate", "rate_source", "rate_tuned", "tuning_runs"]
    table[columns] = used.reindex(table.index)  # not means: all digits stay
    table = table.join(_differences(pairs, against))
    changes = accuracy_differences(answers, ZERO_SHOT)
    for name in QUESTION_SETS:
        change = changes[changes.questions == name].set_index("strategy")[["difference", "low", "high"]]
        of = f"{name}_accuracy_difference"
        table = table.join(change.set_axis([of, f"{of}_low", f"{of}_high"], axis=1))
    ranked = [name for name in table.index if name in STRATEGIES and rates[name].tuned]
    table["rank"] = rank_intervals(pairs, ranked)
    table["seeds"] = grouped["seed"].count()
    return table.reset_index()


def impossible_rows(table: pd.DataFrame, reasons: dict[str, str]) -> pd.DataFrame:
    """Add a row for each strategy that the model's architecture does not allow, with the reason and no figures.

    Args:
        table: the other rows, as `summary` makes them.
        reasons: by strategy.

    Returns:
        The table with a column `reason`, which is empty for what could run.
    """
    table = table.assign(reason="")
    if not reasons:
        return table
    rows = pd.DataFrame([{"strategy": name, "reason": reason} for name, reason in reasons.items()])
    table = pd.concat([table, rows], ignore_index=True)
    return table.fillna({"trainable_values": 0, "seeds": 0}).astype({"trainable_values": int, "seeds": int})


def _differences(pairs: pd.DataFrame, against: str) -> pd.DataFrame:
    """By strategy its difference from `against`, with the interval, whichever of the pair came first."""
    columns = ["difference", "low", "high"]
    first = pairs[pairs["second"] == against].set_index("first")[columns]
    second = -pairs[pairs["first"] == against].set_index("second")[["difference", "high", "low"]]
    table = pd.concat([first, second.set_axis(columns, axis=1)])
    return table.set_axis(["difference", "difference_low", "difference_high"], axis=1)


def now() -> str:
    """The time, as provenance names it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
