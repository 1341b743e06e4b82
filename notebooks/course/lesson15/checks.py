"""The comparison: what a table of losses allows to say of two strategies."""

from functools import partial

import pandas as pd
from scipy import stats

from course.exercises import Quiz, Wrong, function_exercise, kind

OPEN = "cannot tell"


def _tables():
    """Tables in which `lora` reads 0.1 nats worse than `full`, but the last; each makes another mistake show."""
    for story, alternating, shifts, only_full, questions in (
        ("where a hard document is hard for both", 0.1, (-0.01, 0.0, 0.01), 0, 1),
        ("where documents and seeds disagree", 1.0, (-1.0, 0.0, 1.0), 0, 1),
        ("where the seeds disagree widely", 0.02, (-0.8, 0.0, 0.8), 0, 1),
        ("where the seeds disagree", 0.02, (-0.12, 0.0, 0.12), 0, 1),
        ("where three seeds disagree a little", 0.02, (-0.06, 0.0, 0.06), 0, 1),
        ("where only the documents disagree", 0.3, (-0.001, 0.0, 0.001), 0, 1),
        ("for one of 21 pairs", 0.02, (-0.01, 0.0, 0.01), 0, 21),
        ("where `lora` lacks two of five seeds", 0.02, (-0.05, 0.0, 0.05), 2, 1),
        ("where `full` is the worse one", 0.05, (-0.21, -0.2, -0.2, -0.2, -0.19), 0, 21),
    ):
        rows = []
        for document in range(20):
            hard, apart = 3 + document % 7 / 2, 0.1 + alternating * (-1) ** document
            for seed, shift in enumerate(shifts):
                rows += [("full", seed, document, hard), ("lora", seed, document, hard + apart + shift)]
            rows += [("full", len(shifts) + seed, document, hard) for seed in range(only_full)]
        yield story, pd.DataFrame(rows, columns=["strategy", "seed", "document", "loss"]), "full", "lora", questions


def _verdict(losses, one, other, questions, sources=("document", "seed"), t=stats.t.ppf, corrected=True, common=True):
    """The exercise's answer; its options make the mistakes."""
    table = losses.pivot(index=["document", "seed"], columns="strategy", values="loss")
    apart = table[other] - table[one]
    apart, squares = apart.dropna() if common else apart, 0
    for source in sources:
        means = apart.groupby(source).mean()
        squares += (t(1 - 0.025 / (questions if corrected else 1), len(means) - 1) * means.sem()) ** 2
    better = one if apart.mean() > 0 else other
    return better if abs(apart.mean()) > squares**0.5 else OPEN


def _two_intervals(losses, one, other, questions):
    means = losses.groupby(["strategy", "document"]).loss.mean().unstack("strategy")[[one, other]]
    half = stats.t.ppf(1 - 0.025 / questions, len(means) - 1) * means.sem()
    return means.mean().idxmin() if abs(means[one].mean() - means[other].mean()) > half.sum() else OPEN


def _backwards(losses, one, other, questions):
    return {one: other, other: one}.get(_verdict(losses, one, other, questions), OPEN)


def _name(given, losses, one, other, questions):
    if not isinstance(given, str) or given not in (one, other, OPEN):
        raise Wrong(f"{one!r}, {other!r} or {OPEN!r} is asked for, and this is {kind(given)}.")
    return given


verdict = function_exercise(
    "ex15_1",
    "tables in which documents, seeds or the number of questions decide, and one in which runs are missing",
    "First subtract: each document and seed gives one difference of the two strategies. Then the interval, as in the "
    "lesson; `pivot_table` and `groupby` help.",
    "A seed that only one of the two has gives no difference, so it may not count as a degree of freedom: `dropna()`.",
    "The level is `1 - 0.05 / questions`. If the interval is above zero, the second loss is higher and the first "
    "strategy is better.",
    right=_verdict,
    cases=_tables,
    mistakes={
        "the seeds that only one of the two has were counted as degrees of freedom.": partial(_verdict, common=False),
        "this is right for a single question. Of 21, each has to be asked at a level of 1 - 0.05/21.": partial(
            _verdict, corrected=False
        ),
        "the seeds alone speak for a difference. Other documents may speak against it.": partial(
            _verdict, sources=("seed",)
        ),
        "three seeds say little about their spread, so their factor is Student's t, and not 1.96.": partial(
            _verdict, t=lambda p, freedom: stats.norm.ppf(p)
        ),
        "each document was counted once for each seed, but 20 documents that three models read are not 60.": partial(
            _verdict, sources=(["document", "seed"],)
        ),
        "the documents alone speak for a difference. Other seeds may speak against it.": partial(
            _verdict, sources=("document",)
        ),
        "this only compares the means. Another seed or other documents may turn them round.": partial(
            _verdict, sources=()
        ),
        "it is the other way round: a lower loss is better.": _backwards,
        "the two intervals of the strategies overlap, but what makes a document hard for both cancels in the "
        "difference: take its interval.": _two_intervals,
    },
    read=_name,
    alike=lambda given, expected: given == expected,
)


QUIZ = Quiz(
    "quiz15",
    "Two strategies were trained with three seeds each. Over documents, the first has a perplexity of\n"
    "66 to 79 and the second of 69 to 83. Seed by seed, the second's is 2.9 to 4.9 higher. All are intervals\n"
    "at 95%. Do they differ?",
    {
        "a": "No: the first two intervals overlap.",
        "b": "Not yet: more seeds must make those two narrower, until they no longer overlap.",
        "c": "Yes, on these documents: the interval of the difference excludes zero.",
        "d": "Yes, and on any text about Rust: the interval of the difference excludes zero.",
    },
    {
        "a": "no: both models read the same documents, and a hard document raises both scores. This variation is in "
        "each of the two intervals, but it cancels in the difference.",
        "b": "no: those two intervals say what other documents would change. More documents would make them narrower, "
        "more seeds would not.",
        "c": "yes: what a seed did to both cancels in the difference, and all of its interval is above zero. No other "
        "documents were drawn, so the answer is about these documents.",
        "d": "no, that is too much: the interval comes from seeds, on one set of documents. It says nothing about "
        "other texts.",
    },
    right="c",
)
