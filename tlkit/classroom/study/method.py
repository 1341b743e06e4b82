"""How a study is judged: a rubric, and for each point that a record can show a rule that says what is wrong."""

import html
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pandas as pd

from tlkit.classroom import cards
from tlkit.classroom.study.plan import honest_verdict
from tlkit.classroom.study.questions import six_questions
from tlkit.classroom.study.reading import read_study
from tlkit.classroom.study.record import Study, StudyRun
from tlkit.classroom.study.words import FIGURES_NAMED, NEEDED, WORDS, render, typed_figures
from tlkit.evidence.comparison_table import ZERO_SHOT
from tlkit.evidence.learning_rates import CONTROL
from tlkit.evidence.statistics import FEWEST_DOCUMENTS
from tlkit.memory import in_units

Rule = Callable[[Study], Iterable[str]]
RATES_NEEDED = 3  # fewer leave none between two others
REPORT = "report.md"


@dataclass(frozen=True)
class Criterion:
    """One row of the rubric.

    Attributes:
        name: in one or two words.
        points: it is worth.
        given_for: what they are given for.
        rule: finds what is wrong in a record; None where a person has to read.
    """

    name: str
    points: int
    given_for: str
    rule: Rule | None = None


@dataclass(frozen=True)
class Judged:
    """What a study was given for one criterion; `given` is None where a person has to read."""

    criterion: str
    given: int | None
    of: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Judgement:
    """What the rubric says of a study: points as far as a record can show them, and each reason for a point lost."""

    name: str
    judged: tuple[Judged, ...]

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong that a record can show."""
        return not self.reasons

    @property
    def points(self) -> int:
        """Given by the record."""
        return sum(one.given or 0 for one in self.judged)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Everything that is wrong."""
        return tuple(reason for one in self.judged for reason in one.reasons)

    @property
    def table(self) -> pd.DataFrame:
        """A row for each criterion."""
        rows = [
            {
                "criterion": one.criterion,
                "points": "to be read" if one.given is None else f"{one.given} of {one.of}",
                "reason": " ".join(one.reasons),
            }
            for one in self.judged
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        lines = [f"{self.name}: {self._summary()}"]
        for one in self.judged:
            sign = "READ" if one.given is None else "NOT YET" if one.reasons else "RIGHT"
            lines.append(f"[{sign}] {one.criterion}: {' '.join(one.reasons) or self._points(one)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        wrong = [one for one in self.judged if one.reasons]
        said = "".join(
            cards.card(cards.NOT_YET, f"{one.criterion} (0 of {one.of} points)", "\n\n".join(one.reasons))
            for one in wrong
        )
        sound = "Nothing is wrong that a record can show."
        return said + cards.card(
            cards.NOTE if wrong else cards.RIGHT,
            self.name,
            " ".join([html.escape(self._summary()), *([] if wrong else [sound])]),
        )

    def _summary(self) -> str:
        of = sum(one.of for one in self.judged if one.given is not None)
        read = sum(one.of for one in self.judged if one.given is None)
        return f"{self.points} of {of} points by its record; {read} more are given by your instructor."

    @staticmethod
    def _points(one: Judged) -> str:
        return f"{one.of} points by your instructor" if one.given is None else f"{one.given} of {one.of} points"


def judge_study(study: Study | str | Path) -> Judgement:
    """Judge the method of a study by its record.

    What is judged is computed anew from the scores of the documents, and not read from what the study says of itself.

    Args:
        study: a record, or the folder that `write_up` wrote to. There the report has to be what the record gives.

    Raises:
        FileNotFoundError: where there is no record.
        ValueError: where there is something else in its place.
    """
    folder = None if isinstance(study, Study) else Path(study)
    record = study if isinstance(study, Study) else read_study(study)
    found = []
    for criterion in RUBRIC:
        if criterion.rule is None:
            found.append(Judged(criterion.name, None, criterion.points, ()))
            continue
        reasons = tuple(criterion.rule(record))
        if criterion.name == "write-up" and folder is not None:
            reasons += tuple(_report_is_the_records(record, folder))
        found.append(Judged(criterion.name, 0 if reasons else criterion.points, criterion.points, reasons))
    return Judgement(record.text.name, tuple(found))


@dataclass(frozen=True)
class Rubric:
    """What a study gets points for, as a table: whole sentences in a notebook, Markdown elsewhere."""

    table: pd.DataFrame

    def __repr__(self) -> str:
        rows = [f"| {' | '.join(map(str, row))} |" for row in self.table.itertuples(index=False)]
        return "\n".join([f"| {' | '.join(self.table)} |", "| --- | --- | --- | --- |", *rows])

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return self.table.to_html(index=False, justify="left")


def rubric() -> Rubric:
    """What a study gets points for: a row for each criterion, as `instructors.md` has it, too."""
    rows = [(one.name, one.points, one.given_for, "the record" if one.rule else "your instructor") for one in RUBRIC]
    return Rubric(pd.DataFrame(rows, columns=["criterion", "points", "given for", "judged by"]))


def _text(study: Study) -> Iterator[str]:
    for pair, count in study.text.copies.items():
        if not count or pair == "test in test":
            continue
        one, other = pair.split(" in ")
        yield (
            f"The {other} split nearly holds {count} of the {one} documents, too, so their score shows memory. Write "
            "the text anew with `tl.without_copies` and run again."
        )
    if count := study.text.copies.get("test in test"):
        yield (
            f"In the test split {count} of the documents are nearly copies of others, so it is smaller than it looks "
            "and its intervals are too narrow."
        )
    scored = sum(count > 0 for count in study.document_tokens)
    if scored < FEWEST_DOCUMENTS:
        yield (
            f"{scored} test documents were scored: below {FEWEST_DOCUMENTS} nobody can say how much documents differ, "
            "so no difference can be shown. Add text."
        )


def _baseline(study: Study) -> Iterator[str]:
    before = study.baseline
    if not _runs_of(study, ZERO_SHOT):
        yield "The untouched model was not scored on the test split, so nobody can see what training gained."
    if not before.low < before.perplexity < before.high:
        yield "The baseline has no interval: score it with `tl.perplexity` on validation text."
    if not _runs_of(study, CONTROL):
        yield (
            "There is no control: without a run from random weights nobody can see what pretraining is worth on this "
            "text."
        )


def _fit(study: Study) -> Iterator[str]:
    estimated = {fit.strategy: fit for fit in study.fits}
    for name in study.plan.strategies:
        if name not in estimated or estimated[name].estimated_mb is None:
            yield f"The memory of {name} was not estimated before it was run."
        elif estimated[name].estimated_mb > estimated[name].allowed_mb:
            yield (
                f"{name} was estimated at {in_units(1e6 * estimated[name].estimated_mb)}, more than the "
                f"{in_units(1e6 * estimated[name].allowed_mb)} that the card of the plan leaves."
            )
    for name in study.plan.strategies:
        peaks = [run.peak_mb for run in _runs_of(study, name) if run.peak_mb is not None]
        if peaks and max(peaks) > study.plan.card_mb:
            yield (
                f"{name} took {in_units(1e6 * max(peaks))}, and the card of the plan has "
                f"{in_units(1e6 * study.plan.card_mb)}."
            )
        elif not peaks:
            yield f"The peak of memory of {name} was not measured."


def _tuning(study: Study) -> Iterator[str]:
    on = sorted({one.split for one in study.tried if one.split != "validation"})
    if on:
        yield (
            f"Learning rates were chosen on the {' and '.join(on)} split. Whoever chooses by the test split reports "
            "the luckiest of several tries: tune on validation text."
        )
    for name, rates in _rates_scored(study).items():
        if len(rates) > 1:
            listed = ", ".join(f"{rate:g}" for rate in sorted(rates))
            yield (
                f"{name} was scored on the test split at several learning rates ({listed}), so one of them was chosen "
                "there."
            )
    if study.openings > 1:
        yield (
            f"The test split was opened {study.openings} times with different runs. It is for one score at the end; "
            "say in the report what you saw before, and take fresh test text for the next claim."
        )
    budgets = {}
    for name in _needed(study):
        scores = _tried_scores(study, name)
        budgets[name] = sum(one.strategy == name for one in study.tried)
        if not scores:
            yield (
                f"The learning rate of {name} was never searched for on this text, so its score says little about "
                f"{name}."
            )
            continue
        best = min(scores, key=scores.get)
        if math.isinf(scores[best]):
            yield f"Every learning rate that was tried for {name} diverged."
            continue
        if len(scores) < RATES_NEEDED or not min(scores) < best < max(scores):
            yield (
                f"The best learning rate of {name} ({best:g}) is at the edge of the {len(scores)} that were tried, so "
                "a better one may lie outside."
            )
        used = {run.learning_rate for run in _runs_of(study, name)} - {None}
        if used and used != {best}:
            yield (
                f"{name} was run at {', '.join(f'{rate:g}' for rate in sorted(used))}, and the search found {best:g} "
                "to be best on validation text."
            )
    if len(set(budgets.values()) - {0}) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in budgets.items())
        yield f"The searches had unequal budgets (runs: {listed}). Give every strategy as many tries."


def _equal_runs(study: Study) -> Iterator[str]:
    named = {
        "steps": "optimizer steps",
        "tokens": "training tokens",
        "batch_size": "blocks in a batch",
        "block_size": "tokens in a block",
    }
    trained = [run for name in _needed(study) for run in _runs_of(study, name)]
    for field, words in named.items():
        values = {name: {getattr(run, field) for run in _runs_of(study, name)} for name in _needed(study)}
        if len({getattr(run, field) for run in trained}) > 1:
            listed = "; ".join(f"{name} {_listed(found)}" for name, found in values.items() if found)
            yield f"The runs differ in {words} ({listed}), so the strategy is not the only thing that was changed."
    compared = [run for name in study.plan.strategies for run in _runs_of(study, name)]
    windows = {(run.context, run.stride) for run in [*compared, *_runs_of(study, ZERO_SHOT)]}
    if len(windows) > 1:
        listed = ", ".join(f"{context} by {stride}" for context, stride in sorted(windows))
        yield (
            f"Scores come from different windows ({listed} tokens), and the same text scores better with more context."
        )
    metrics = {run.metric for run in study.runs}
    if metrics != {study.plan.metric}:
        yield f"The plan names {study.plan.metric}, and runs were scored by {' and '.join(sorted(metrics))}."
    if splits := sorted({run.split for run in study.runs} - {"test"}):
        yield f"Some runs were scored on the {' and '.join(splits)} split; the comparison belongs on the test split."
    seeds = {name: sorted(run.seed for run in _runs_of(study, name)) for name in study.plan.strategies}
    for name, found in seeds.items():
        lost = [reason for run, reason in study.failures.items() if run.startswith(f"{name},")]
        if not found:
            why = f"it failed: {lost[0]}" if lost else "nothing says why"
            yield f"{name} is in the plan and has no run ({why})."
        elif len(found) < 2:
            yield f"{name} has one seed, so nobody can tell its result from luck. Run at least two, better three."
    for name, found in seeds.items():
        scores = {run.seed: run.nats for run in _runs_of(study, name)}
        if twins := [pair for pair in combinations(found, 2) if scores[pair[0]] == scores[pair[1]]]:
            yield (
                f"Seeds {twins[0][0]} and {twins[0][1]} of {name} have the same scores to the last digit, so the seed "
                "changed nothing or a run was copied."
            )
        if any(run.nats in scores.values() for run in _runs_of(study, ZERO_SHOT)):
            yield f"{name} scores as the untouched model does to the last digit, so its training changed nothing."
    if len({tuple(found) for found in seeds.values() if found}) > 1:
        listed = "; ".join(f"{name} {_listed(found)}" for name, found in seeds.items())
        yield f"The strategies do not have the same seeds ({listed}), so they are not compared in pairs."


def _general(study: Study) -> Iterator[str]:
    for name in (ZERO_SHOT, *study.plan.strategies):
        runs = _runs_of(study, name)
        if runs and any(run.general is None for run in runs):
            yield f"{name} was not scored on general text, so nobody can see what it has forgotten."
    answered = {one.strategy for one in study.answered}
    if missing := [name for name in study.plan.strategies if name not in answered and _runs_of(study, name)]:
        yield (
            f"No questions were put to {' and '.join(missing)}. Perplexity is not knowledge: ask some, even if the "
            "model can only guess."
        )


def _decision(study: Study) -> Iterator[str]:
    decision = study.decision
    if decision is None:
        yield "There is no decision yet: add one with `study.decided`."
        return
    for name in (decision.strategy, decision.than):
        if name not in (*study.plan.strategies, ZERO_SHOT):
            yield f"The decision is about {name}, which is not in the plan."
            return
    # The pair as the report has it: percent of one strategy are not percent of the other, nor is the band.
    pair = study.in_order(decision.strategy, decision.than)
    value, low, high = study.difference(*pair)
    forgets = tuple(0.0 if name == ZERO_SHOT else study.forgetting["mean"].get(name, math.nan) for name in pair)
    honest, place = honest_verdict(low, high, study.plan.worthwhile, forgets, study.plan.may_forget)
    better = None if place is None else pair[place]
    one_sided = decision.verdict in ("better", "too costly")
    if decision.verdict == honest and (not one_sided or decision.strategy == better):
        return
    if not math.isfinite(low) or not math.isfinite(high):
        yield (
            f"It says that {decision}, and these runs give no interval for the difference (too few seeds or "
            f"documents). The honest decision is “{honest}”."
        )
        return
    side = f"{abs(value):.1f}% {'below' if value < 0 else 'above'}"
    between = f"{pair[0]} ends {side} {pair[1]}, with an interval from {low:+.1f} to {high:+.1f}%"
    band = f"the {study.plan.worthwhile:g}% that the plan calls worthwhile"
    if honest == "equal":
        why = f"which lies wholly within {band}, so the difference does not matter."
    elif decision.verdict == "equal" and (low > 0 or high < 0):
        why = f"which excludes zero and reaches beyond {band}."
    elif decision.verdict == "equal":
        why = f"which leaves room for more than {band}: not finding a difference does not show that there is none."
    elif honest == "cannot tell":
        why = "which has zero in it."
    elif decision.verdict == "cannot tell":
        why = "which excludes zero: this study can tell."
    elif decision.strategy != better:
        why = "which lies on the other side."
    else:
        limit = "more than" if honest == "too costly" else "within"
        between = f"{better} raises perplexity on general text by {forgets[place]:.0f}%"
        why = f"{limit} the {study.plan.may_forget:g}% that the plan allows."
    yield f"It says that {decision}, but {between}, {why} The honest decision is “{honest}”."


def _write_up(study: Study) -> Iterator[str]:
    if study.decision is None:
        yield "There is nothing to write up before there is a decision."
        return
    for name in WORDS:
        words = getattr(study.decision, name)
        if len(words.split()) < NEEDED:
            yield f"`{name}` has fewer than {NEEDED} words. Say it in a sentence or two of your own."
        try:
            render(words, study)
        except ValueError as error:
            yield f"`{name}`: {error}."
        if name in FIGURES_NAMED and (typed := typed_figures(words)):
            yield (
                f"In `{name}` figures were typed by hand ({', '.join(typed)}). Name them instead, as $gain_full, so "
                "that they come from the run."
            )


def _self_audit(study: Study) -> Iterator[str]:
    for asked in six_questions(study):
        if not asked.passed:
            yield f"Question {asked.number} ({asked.question}) {asked.answer}"


def _report_is_the_records(study: Study, folder: Path) -> Iterator[str]:
    """The report has to be what the record gives, to the last figure."""
    from tlkit.classroom.study.report import report_markdown

    path = (folder if folder.is_dir() else folder.parent) / REPORT
    if not path.is_file():
        yield f"There is no {REPORT} beside the record: write it with `tl.write_up`."
    elif study.decision is not None:
        try:
            expected = report_markdown(study)
        except ValueError:
            return  # said already, of the words that cannot be filled in
        if path.read_text(encoding="utf-8") != expected:
            yield (
                f"{REPORT} is not what the record gives, so something was changed by hand, or it is of another "
                "version: write it anew with `tl.write_up`."
            )


def _needed(study: Study) -> list[str]:
    """What has to be tuned and trained alike: the strategies of the plan, and the control where there is one."""
    return [*study.plan.strategies, *([CONTROL] if _runs_of(study, CONTROL) else [])]


def _runs_of(study: Study, strategy: str) -> list[StudyRun]:
    return [run for run in study.runs if run.strategy == strategy]


def _rates_scored(study: Study) -> dict[str, set[float]]:
    return {
        name: {run.learning_rate for run in _runs_of(study, name) if run.split == "test"} - {None}
        for name in study.plan.strategies
    }


def _tried_scores(study: Study, strategy: str) -> dict[float, float]:
    """For each rate the mean score over its seeds, infinite where one diverged."""
    by_rate: dict[float, list[float]] = {}
    for one in study.tried:
        if one.strategy == strategy:
            by_rate.setdefault(one.learning_rate, []).append(math.inf if one.score is None else one.score)
    return {rate: sum(scores) / len(scores) for rate, scores in by_rate.items()}


def _listed(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in sorted(values))


RUBRIC = (
    Criterion(
        "question",
        2,
        "a question that these runs can answer, with what would be worthwhile and what may be forgotten, settled first",
    ),
    Criterion(
        "text", 3, "no copies between the splits, and enough test documents that a difference can be shown", _text
    ),
    Criterion(
        "baseline and control", 3, "the untouched model with an interval, and a run from random weights", _baseline
    ),
    Criterion("card", 2, "estimated before, measured after, and both within the card that the plan names", _fit),
    Criterion(
        "tuning",
        4,
        "every strategy and the control searched with as many runs, on validation text, with the best rate between two "
        "others, and the test split opened once",
        _tuning,
    ),
    Criterion(
        "equal runs",
        4,
        "the strategy is the only thing that differs: same steps, text, batch, window, metric and seeds, at least two "
        "seeds, and nothing silently missing",
        _equal_runs,
    ),
    Criterion("what it costs", 2, "forgetting on general text and answers to questions, for every strategy", _general),
    Criterion(
        "decision",
        5,
        "it is the one of “better”, “too costly”, “equal” and “cannot tell” that the interval and the plan allow; each "
        "is worth as much as the others",
        _decision,
    ),
    Criterion(
        "write-up",
        3,
        "every figure of the answer and the explanation comes from the record, and the report is what the record gives",
        _write_up,
    ),
    Criterion(
        "self-audit", 2, "the six questions of the autopsy, answered from the record without a fault", _self_audit
    ),
    Criterion(
        "explanation",
        6,
        "why it came out like this, from what the lessons say about the strategies, marked as a hypothesis where it "
        "was not tested",
    ),
    Criterion("limits", 4, "what the study does not say, and the run that would be worth doing next"),
)
