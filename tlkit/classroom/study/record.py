"""A study as a record: everything that was measured, in plain values, from which report and judgement are made."""

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tlkit.checkpoints import hash_of
from tlkit.classroom.study.datasheet import PAIRS, Datasheet, agreement, smallest_difference
from tlkit.classroom.study.plan import Decision, StudyPlan
from tlkit.corpus import SPLITS
from tlkit.evaluation import PerplexityResult, result_of
from tlkit.evidence.answers import accuracy_differences
from tlkit.evidence.carry_over import relative_perplexities
from tlkit.evidence.comparison import Comparison
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.flops import count_flops
from tlkit.evidence.learning_rates import CONTROL, recorded_rates
from tlkit.evidence.statistics import compare_pairs, rank_intervals, seed_intervals
from tlkit.memory import in_units
from tlkit.models import meta_model
from tlkit.strategies import apply_strategy

FORMAT = 2
RECORD = "study.json"
MOST_TOKENS = 10**9  # of a document
MOST_NATS = 100  # of a token: perplexities beyond exp(100) are no scores


@dataclass(frozen=True)
class Text:
    """The text and its splits, as `Datasheet` has them, and the smallest difference in percent that can be shown.

    `detectable` is the forecast from the recorded comparison on Rust, and `detectable_here` goes by these runs; None
    where no difference could be shown, or these runs cannot say.
    """

    name: str
    sha256: str
    documents: dict[str, int]
    tokens: dict[str, int]
    removed: int
    copies: dict[str, int]
    detectable: float | None
    detectable_here: float | None = None


@dataclass(frozen=True)
class Baseline:
    """The untouched model on validation text, before anything was decided."""

    perplexity: float
    low: float
    high: float
    documents: int
    nats_per_token: float
    vocabulary: int
    weights_sha256: str


@dataclass(frozen=True)
class Fit:
    """What a step of a strategy was estimated to need, in MB; None where it could not be estimated."""

    strategy: str
    estimated_mb: float | None
    allowed_mb: float


@dataclass(frozen=True)
class Tried:
    """One run of the search for a learning rate: what it was scored on, and the score; None where it diverged."""

    strategy: str
    learning_rate: float
    seed: int
    split: str
    score: float | None


@dataclass(frozen=True)
class Trained:
    """What a strategy trains, in values, by component, what looks doubtful about it, and the FLOPs of a step."""

    strategy: str
    trainable_values: int
    components: dict[str, int]
    doubts: list[str]
    flops: float | None


@dataclass(frozen=True)
class StudyRun:
    """One run that was scored on a split; the untouched model and the control are runs, too.

    `nats` has the loss of each document, summed over its tokens.
    """

    strategy: str
    seed: int
    split: str
    metric: str
    learning_rate: float | None
    steps: int
    tokens: int
    context: int
    stride: int
    batch_size: int
    block_size: int
    trainable_values: int
    first_loss: float | None
    peak_mb: float | None
    seconds: float
    general: float | None
    nats: list[float]


@dataclass(frozen=True)
class Answered:
    """Four-option questions: how many were asked, accuracy before, its change, and the interval of the change.

    The interval ends where accuracy would be 0 or 1. With few questions that is most of it: they say nothing.
    """

    strategy: str
    questions: str
    asked: int
    before: float
    change: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Study:
    """A study from its plan to its decision.

    Attributes:
        plan: what was settled before.
        text: the datasheet.
        model: preset, hub id or folder.
        baseline: the untouched model on validation text.
        fits: estimates against the card.
        tried: every run of the search for learning rates.
        trained: what each strategy trains.
        runs: every run that was scored for the comparison.
        document_tokens: of each scored document.
        answered: four-option questions.
        failures: by run, why it failed.
        openings: how often the test split was scored with other settings or other runs for this study.
        provenance: what the figures depend on, in words.
        decision: None until there is one.
        format: of the file.
    """

    plan: StudyPlan
    text: Text
    model: str
    baseline: Baseline
    fits: list[Fit]
    tried: list[Tried]
    trained: list[Trained]
    runs: list[StudyRun]
    document_tokens: list[int]
    answered: list[Answered]
    failures: dict[str, str]
    provenance: dict[str, str]
    decision: Decision | None = None
    openings: int = 1
    format: int = FORMAT

    def decided(self, decision: Decision) -> "Study":
        """The same study with a decision."""
        return replace(self, decision=decision)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A row for each run and document, as `compare_pairs` takes them; of runs with one seed the last counts."""
        last = {(run.strategy, run.seed): run for run in self.runs}
        parts = [
            pd.DataFrame(
                {
                    "strategy": run.strategy,
                    "seed": run.seed,
                    "document": range(len(run.nats)),
                    "nats": run.nats,
                    "tokens": self.document_tokens,
                }
            )
            for run in last.values()
        ]
        return pd.concat(parts, ignore_index=True)

    @cached_property
    def perplexities(self) -> pd.Series:
        """By strategy the geometric mean over seeds, computed anew from the documents."""
        sums = self.scores.groupby("strategy", sort=False)[["nats", "tokens"]].sum()
        return np.exp((sums.nats / sums.tokens).clip(upper=700))

    @cached_property
    def compared(self) -> pd.DataFrame:
        """Every pair of the plan's strategies: the first against the second, in percent of perplexity, with interval.

        The interval is corrected for the number of pairs; the pair is separated exactly where it excludes zero.
        """
        pairs = compare_pairs(self.scores[self.scores.strategy.isin(self.plan.strategies)])
        middle = np.sqrt(
            self.perplexities.reindex(pairs["first"]).to_numpy() * self.perplexities.reindex(pairs["second"]).to_numpy()
        )
        for column in ("difference", "low", "high"):
            pairs[column] = 100 * np.expm1(2 * np.arcsinh(pairs[column].to_numpy() / (2 * middle)))
        return pairs

    @cached_property
    def gains(self) -> pd.DataFrame:
        """By strategy the change of perplexity against the untouched model in percent: value, low, high, p (Holm)."""
        there = set(self.scores.strategy)
        here = [name for name in self.plan.strategies if {name, ZERO_SHOT} <= there]
        changes = relative_perplexities(self.scores, ZERO_SHOT, here)
        return changes.assign(**{column: 100 * changes[column] for column in ("value", "low", "high")})

    @cached_property
    def forgetting_by_seed(self) -> pd.DataFrame:
        """A row for each run of the plan's strategies: strategy, seed, and the change on general text in percent."""
        start = next((run.general for run in self.runs if run.strategy == ZERO_SHOT), None)
        rows = [
            {"strategy": run.strategy, "seed": run.seed, "change": 100 * (run.general / start - 1)}
            for run in self.runs
            if run.strategy in self.plan.strategies and run.general is not None and start
        ]
        return pd.DataFrame(rows, columns=["strategy", "seed", "change"])

    @cached_property
    def forgetting(self) -> pd.DataFrame:
        """By strategy the change of perplexity on general text in percent, with an interval over seeds."""
        return seed_intervals(self.forgetting_by_seed, "change")

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row for each strategy, the untouched model and the control, as `perplexity_chart` takes it.

        Perplexities are those of `perplexities`, so that a chart and the report have the same figures; their intervals
        are over documents.
        """
        rows = []
        for name, part in self.scores.groupby("strategy", sort=False):
            means = part.groupby("document")[["nats", "tokens"]].mean()
            nats, tokens = (torch.tensor(means[column].to_numpy()) for column in ("nats", "tokens"))
            found = result_of(nats, tokens, size=0, window=(0, 0))
            rows.append((name, found.perplexity, found.low, found.high))
        table = pd.DataFrame(rows, columns=["strategy", "perplexity", "perplexity_low", "perplexity_high"])
        ranks = rank_intervals(self.compared, list(self.plan.strategies))
        return table.assign(rank=table.strategy.map(ranks))

    @cached_property
    def costs(self) -> pd.DataFrame:
        """A row for each strategy of the plan: what it forgot, memory, time, and the questions it gets right."""
        rows = []
        for name in self.plan.strategies:
            runs = [run for run in self.runs if run.strategy == name]
            peaks = [run.peak_mb for run in runs if run.peak_mb is not None]
            rows.append(
                {
                    "strategy": name,
                    "general text (%)": self.forgetting["mean"].get(name, math.nan),
                    "peak of memory": in_units(1e6 * max(peaks)) if peaks else "not measured",
                    "seconds of a run": float(np.median([run.seconds for run in runs])) if runs else math.nan,
                    **{
                        f"{one.questions} questions right": f"{one.before:.0%} → {one.before + one.change:.0%}"
                        for one in self.answered
                        if one.strategy == name
                    },
                }
            )
        return pd.DataFrame(rows)

    def in_order(self, one: str, other: str) -> tuple[str, str]:
        """Two strategies in the order in which `compared` has them; the untouched model comes second."""
        pairs = set(zip(self.compared["first"], self.compared["second"], strict=True))
        return (other, one) if one == ZERO_SHOT or (other, one) in pairs else (one, other)

    def difference(self, first: str, second: str) -> tuple[float, float, float]:
        """How far the perplexity of one strategy lies from another's, in percent, with the interval.

        Args:
            first: a strategy of the plan.
            second: another one, or "zero-shot".

        Returns:
            The difference, negative where the first is better, and the low and high end; NaN where there is none.
        """
        if second == ZERO_SHOT and first in self.gains.index:
            return tuple(float(self.gains.loc[first, column]) for column in ("value", "low", "high"))
        for row in self.compared.itertuples():
            if (row.first, row.second) == (first, second):
                return row.difference, row.low, row.high
            if (row.second, row.first) == (first, second):
                turned = (100 * (1 / (1 + value / 100) - 1) for value in (row.difference, row.high, row.low))
                return tuple(turned)
        return math.nan, math.nan, math.nan

    @property
    def digest(self) -> str:
        """A hash of what was scored, to see whether the test split was opened again."""
        scored = json.dumps([[run.strategy, run.seed, run.learning_rate, run.nats] for run in self.runs])
        return hashlib.sha256(scored.encode()).hexdigest()

    def to_json(self) -> str:
        """The record as a file has it; what is not a number is null."""
        return json.dumps(_plain(asdict(self)), indent=1, ensure_ascii=False) + "\n"


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


def read_study(path: str | Path) -> Study:
    """Read a record that was written, by this program or by hand.

    Args:
        path: of `study.json`, or its folder.

    Raises:
        FileNotFoundError: where there is none.
        ValueError: where it is no record of a study, naming the place and what was expected.
    """
    path = Path(path)
    path = path / RECORD if path.is_dir() else path
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected the {RECORD} that a study writes, or its folder")
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda _: None)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON ({getattr(error, 'msg', error)})") from None
    try:
        found = _read(Study, content, "")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if problem := _contradiction(found):
        raise ValueError(f"{path}: {problem}")
    return found


def _contradiction(study: Study) -> str:
    """What would keep a record from being computed with."""
    if study.format != FORMAT:
        return f"format is {study.format}, expected {FORMAT}"
    if not study.runs:
        return "there are no runs; expected one at least"
    counts = study.document_tokens
    if not counts or min(counts) < 0 or not sum(counts) or max(counts) > MOST_TOKENS:
        return f"document_tokens: expected the tokens of each scored document, at most {MOST_TOKENS:,} each"
    for field, wanted in (("documents", SPLITS), ("tokens", SPLITS), ("copies", [f"{a} in {b}" for a, b in PAIRS])):
        if set(getattr(study.text, field)) != set(wanted):
            return f"text.{field}: expected {', '.join(wanted)}"
    names = [(run.strategy, run.seed, run.learning_rate, run.split) for run in study.runs]
    if twice := [name for name in names if names.count(name) > 1]:
        return f"the run {twice[0][0]}, seed {twice[0][1]} is there twice"
    for run in study.runs:
        if len(run.nats) != len(study.document_tokens):
            return (
                f"{run.strategy}, seed {run.seed} has {len(run.nats)} scores for {len(study.document_tokens)} documents"
            )
        for nats, tokens in zip(run.nats, study.document_tokens, strict=True):
            if not 0 <= nats <= MOST_NATS * tokens:
                named = f"{run.strategy}, seed {run.seed}"
                return f"{named}: {nats:g} nats for {tokens} tokens, expected 0 to {MOST_NATS} each"
    return ""


def _read(kind: object, value: object, where: str) -> object:
    """Make a value of a type of what JSON says.

    Raises:
        ValueError: naming the place, what is there and what was expected.
    """
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _read(next(one for one in inside if one is not type(None)), value, where)
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    if origin in (list, tuple) and isinstance(value, list):
        found = [_read(inside[0], one, f"{where}[{place}]") for place, one in enumerate(value)]
        return tuple(found) if origin is tuple else found
    if origin is dict and isinstance(value, dict):
        return {key: _read(inside[1], one, f"{where}.{key}") for key, one in value.items()}
    plain = {str: str, int: int, float: (int, float)}.get(kind)
    if plain is None or isinstance(value, bool) or not isinstance(value, plain):
        wanted = {str: "text", int: "a whole number", float: "a number"}.get(
            kind, getattr(origin, "__name__", "a list")
        )
        raise ValueError(f"{where} is {json.dumps(value)[:40]}, expected {wanted}")
    return float(value) if kind is float else value


def _read_fields(kind: type, value: object, where: str) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the file'} is {json.dumps(value)[:40]}, expected an object")
    hints = typing.get_type_hints(kind)
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    place = f"{where}." if where else ""
    if missing := sorted(needed - set(value)):
        raise ValueError(f"{place}{missing[0]} is missing")
    if unknown := sorted(set(value) - set(hints)):
        raise ValueError(f"{place}{unknown[0]} is unknown: expected {', '.join(hints)}")
    return kind(**{name: _read(hints[name], one, f"{place}{name}") for name, one in value.items()})


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


def _plain(value: object) -> object:
    """Values as JSON has them: a number that is not finite is null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
