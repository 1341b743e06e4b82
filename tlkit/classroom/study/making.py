"""Put everything that was measured in a study into one record."""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tlkit.checkpoints.identity import hash_of
from tlkit.classroom.study.datasheet import Datasheet, agreement, smallest_difference
from tlkit.classroom.study.plan import StudyPlan
from tlkit.classroom.study.record import Answered, Baseline, Fit, Study, StudyRun, Text, Trained, Tried
from tlkit.evaluation import PerplexityResult
from tlkit.evidence.answers import accuracy_differences
from tlkit.evidence.comparison import Comparison
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.flops import count_flops
from tlkit.evidence.learning_rates import CONTROL, recorded_rates
from tlkit.models import meta_model
from tlkit.strategies import apply_strategy


def study(
    plan: StudyPlan,
    sheet: Datasheet,
    baseline: PerplexityResult,
    model: torch.nn.Module,
    fits: pd.DataFrame,
    comparison: Comparison,
    rates: str | Path | None = None,
) -> Study:
    """Put everything that was measured into one record.

    Args:
        plan: what was settled before.
        sheet: the datasheet of the text.
        baseline: the untouched model on validation text.
        model: that model.
        fits: what `fit_to_card` returned.
        comparison: what `compare` returned.
        rates: the folder that `compare` wrote to, whose `rates.csv` is the search for learning rates, or such a file;
            default: the recorded search that `compare` went by.

    Returns:
        The record, without a decision.

    Raises:
        ValueError: where the comparison is of another text than the datasheet.
    """
    made = comparison.provenance
    if made.get("corpus_sha256", sheet.sha256) != sheet.sha256:
        raise ValueError(
            f"the comparison is of another text ({made['corpus']}) than the datasheet ({sheet.name}): make both of the "
            "same corpus"
        )
    before = Baseline(
        baseline.perplexity,
        baseline.low,
        baseline.high,
        baseline.documents,
        baseline.nats_per_token,
        int(model.config.get_text_config().vocab_size),
        hash_of(model.parameters()),
    )
    documents = comparison.documents
    tokens = documents[documents.strategy == ZERO_SHOT].sort_values("document").tokens
    seeds = int(made["seeds"]) if "seeds" in made else None
    scored = min(len(tokens), sheet.documents["test"])
    counted = {"documents": scored, "seeds": seeds}
    detectable = smallest_difference(sheet, baseline, plan.strategies, **counted)
    here = None
    if _seeds_of_all(documents, plan.strategies) > 1:
        alike = agreement(documents, plan.strategies)
        here = _or_none(smallest_difference(sheet, baseline, plan.strategies, alike=alike, **counted))
    copies = sheet.copied
    text = Text(sheet.name, sheet.sha256, sheet.documents, sheet.tokens, sheet.removed, copies, detectable, here)
    batch, block = int(made.get("batch_size", 0)), int(made.get("block_size", 0))
    return Study(
        plan=plan,
        text=text,
        model=str(made["model"]),
        baseline=before,
        fits=[Fit(row.strategy, _or_none(row.estimated_mb), float(row.allowed_mb)) for row in fits.itertuples()],
        tried=_tried(rates, made),
        trained=[_trained(str(made["model"]), name, batch, block) for name in plan.strategies],
        runs=_runs(comparison, batch, block),
        document_tokens=[int(count) for count in tokens],
        answered=_answered(comparison, plan),
        failures={name: text.splitlines()[-1] for name, text in comparison.failures.items()},
        provenance={key: _in_words(value) for key, value in made.items()},
    )


def _seeds_of_all(documents: pd.DataFrame, strategies: Iterable[str]) -> int:
    """How many seeds every one of the strategies has."""
    return len(set.intersection(*(set(documents[documents.strategy == name].seed) for name in strategies)))


def _tried(rates: str | Path | None, made: dict[str, object]) -> list[Tried]:
    """The search for learning rates, every run of which was scored on validation text."""
    path = None if rates is None else Path(rates)
    path = path / "rates.csv" if path is not None and path.is_dir() else path
    if path is not None and path.is_file():
        record = pd.read_csv(path)
    else:
        record = recorded_rates(str(made["model"]), str(made.get("task", "text")), str(made["corpus"]))
    if record is None or record.corpus_sha256.iloc[0] != made.get("corpus_sha256"):
        return []  # a search on another text tunes nothing here
    ran = record[record.error.isna()] if "error" in record else record
    return [
        Tried(row.strategy, float(row.learning_rate), int(row.seed), "validation", _or_none(row.validation_perplexity))
        for row in ran.itertuples()
    ]


def _trained(model: str, strategy: str, batch: int, block: int) -> Trained:
    """What a strategy trains and what a step of it computes, on a model without weights."""
    report = apply_strategy(meta_model(model), strategy)
    try:
        flops = float(count_flops(report.model, torch.zeros(max(1, batch), max(2, block), dtype=torch.long)).total)
    except (NotImplementedError, RuntimeError):  # 4-bit weights have no shapes to compute with
        flops = None
    parts = {name: int(part.trainable_values) for name, part in report.components.items() if part.trainable_values}
    return Trained(strategy, int(report.trainable_values), parts, list(report.doubts), flops)


def _runs(comparison: Comparison, batch: int, block: int) -> list[StudyRun]:
    made, curves = comparison.provenance, comparison.curves
    documents = comparison.documents.sort_values("document").groupby(["strategy", "seed"]).nats
    found = []
    for row in comparison.runs.to_dict("records"):
        seed = 0 if pd.isna(row["seed"]) else int(row["seed"])
        curve = curves[(curves.strategy == row["strategy"]) & (curves.seed == seed)] if len(curves) else curves
        found.append(
            StudyRun(
                strategy=row["strategy"],
                seed=seed,
                split="test",
                metric="perplexity",
                learning_rate=_or_none(row["learning_rate"]),
                steps=len(curve),
                tokens=int(curve["tokens"].sum()) if "tokens" in curve else 0,
                context=int(row["context"]),
                stride=int(made.get("stride", row["context"])),
                batch_size=batch,
                block_size=block,
                trainable_values=int(row["trainable_values"]),
                first_loss=_or_none(curve.sort_values("step").loss.iloc[0]) if len(curve) else None,
                peak_mb=_or_none(row["peak_memory_mb"]),
                seconds=float(row["seconds"]),
                general=_or_none(row["general"]),
                nats=[float(value) for value in documents.get_group((row["strategy"], seed))],
            )
        )
    return found


def _answered(comparison: Comparison, plan: StudyPlan) -> list[Answered]:
    answers = comparison.answers
    if not len(answers):
        return []
    start = answers[answers.strategy == ZERO_SHOT].groupby("questions").correct.agg(["mean", "size"])
    found = []
    for row in accuracy_differences(answers, ZERO_SHOT).itertuples():
        if row.strategy in plan.strategies and row.strategy != CONTROL:
            before, asked = float(start.loc[row.questions, "mean"]), int(start.loc[row.questions, "size"])
            low, high = (_or_none(np.clip(end, -before, 1 - before)) for end in (row.low, row.high))
            found.append(Answered(row.strategy, row.questions, asked, before, float(row.difference), low, high))
    return found


def _or_none(value: object) -> float | None:
    return None if value is None or not math.isfinite(float(value)) else float(value)


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {one}" for key, one in value.items())
    return str(value)
