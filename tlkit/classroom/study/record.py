"""A study as a record: everything that was measured, in plain values, from which report and judgement are made."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from tlkit.classroom.study.plan import Decision, StudyPlan
from tlkit.evaluation import result_of
from tlkit.evidence.carry_over import relative_perplexities
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.statistics import compare_pairs, rank_intervals, seed_intervals
from tlkit.memory import in_units

FORMAT = 2
RECORD = "study.json"


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


def _plain(value: object) -> object:
    """Values as JSON has them: a number that is not finite is null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
