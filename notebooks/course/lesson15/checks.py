"""The comparison: a rate chosen without the test."""

import math

import pandas as pd

from course.exercises import Quiz, Wrong, function_exercise, kind, number


def _records():
    """Tuning where each unfair choice ends at another rate, or with another score."""
    infinite = math.inf
    for scores in (
        {  # strategy -> rate -> (validation, test) of each seed
            "full": {0.001: [(80, 85), (82, 87)], 0.002: [(83, 83), (85, 84)], 0.005: [(79, 90), (99, 96)]},
            "lora": {0.001: [(95, 90), (97, 92)], 0.002: [(85, 92), (97, 98)], 0.005: [(88, 93), (86, 95)]},
        },
        {
            "bitfit": {
                0.01: [(112, 115), (110, 114), (111, 119)],
                0.02: [(106, 108), (107, 110), (105, 112)],
                0.05: [(104, 113), (103, 112), (105, 114)],
            },
            "freeze_lower": {
                0.01: [(78, 82), (79, 80), (77, 84)],
                0.02: [(81, 80), (80, 78), (83, 81)],
                0.05: [(70, 72), (infinite, infinite), (71, 74)],
            },
        },
    ):
        runs = [
            (name, rate, seed, *pair)
            for name, rates in scores.items()
            for rate, pairs in rates.items()
            for seed, pair in enumerate(pairs)
        ]
        columns = ["strategy", "learning_rate", "seed", "validation_perplexity", "test_perplexity"]
        yield f"for a record of {' and '.join(scores)}", pd.DataFrame(runs, columns=columns)


def _means(record):
    return record.groupby(["strategy", "learning_rate"])[["validation_perplexity", "test_perplexity"]].mean()


def _rates(record, means=_means) -> dict[str, float]:
    """The rate of each strategy at which the validation text is read best."""
    return {name: place[1] for name, place in means(record).validation_perplexity.groupby("strategy").idxmin().items()}


def _tested(record, rates, means=_means) -> dict[str, float]:
    return {name: means(record).test_perplexity[name, rate] for name, rate in rates.items()}


def _luckiest(record):
    return record.loc[record.groupby("strategy").validation_perplexity.idxmin()].set_index("strategy")


def _finite(record):
    return _means(record[record.validation_perplexity < math.inf])


def _one_rate(record) -> dict[str, float]:
    rate = record.groupby("learning_rate").validation_perplexity.mean().idxmin()
    return _tested(record, dict.fromkeys(record.strategy.unique(), rate))


def _best_seeds(record) -> dict[str, float]:
    at = record.groupby(["strategy", "learning_rate"]).test_perplexity.min()
    return {name: at[name, rate] for name, rate in _rates(record).items()}


def _scores(given, record):
    given = given.to_dict() if isinstance(given, pd.Series) else given
    if not isinstance(given, dict):
        raise Wrong(f"a dict is asked for, from each strategy to its score, and this is {kind(given)}.")
    if given.keys() != set(record.strategy):
        raise Wrong(f"the keys are not the strategies: {', '.join(map(repr, given))[:60] or 'none'}.")
    return {name: number(value) for name, value in given.items()}


fair_scores = function_exercise(
    "ex15_1",
    "the scores of two records of tuning: which rate was chosen, by what, and what was reported for it",
    "Two questions, two texts: one column may choose the rate, the other may only be read at the end.",
    "A rate is as good as its mean over all its seeds. A run that diverged has infinity, and so has the mean of a rate "
    "that cannot be relied on: leave such runs in.",
    "With groupby, make both means for each strategy and rate. For each strategy take the rate at which the validation "
    "mean is lowest (`idxmin`), and look the test mean up at that rate.",
    right=lambda record: _tested(record, _rates(record)),
    cases=_records,
    mistakes={
        "these are scores on the tuning text.": lambda record: dict(
            _means(record).validation_perplexity.groupby("strategy").min()
        ),
        "these are the learning rates; the score that each reaches is asked for.": _rates,
        "the rate was chosen by the test text. Then it is tuning text too, and nothing is left to test with.": (
            lambda record: dict(_means(record).test_perplexity.groupby("strategy").min())
        ),
        "this is the best run on the test text: it was chosen by what should only be read at the end.": lambda record: (
            dict(record.groupby("strategy").test_perplexity.min())
        ),
        "the rate is that of the luckiest single run; the next seed may be the unlucky one.": lambda record: _tested(
            record, dict(_luckiest(record).learning_rate)
        ),
        "this is the luckiest single run; the next seed may be the unlucky one.": lambda record: dict(
            _luckiest(record).test_perplexity
        ),
        "all got one rate; which one it is decides who looks good.": _one_rate,
        "runs that diverged were left out, and the rate that made them diverge was chosen for the others.": (
            lambda record: _tested(record, _rates(record, _finite), _finite)
        ),
        "the score is a mean over all rates, also those that nobody would use.": lambda record: dict(
            record.groupby("strategy").test_perplexity.mean()
        ),
        "the rate is chosen well, and then only the best seed is reported: take all seeds of that rate.": _best_seeds,
    },
    read=_scores,
    alike=lambda given, expected: all(math.isclose(given[name], expected[name], abs_tol=0.01) for name in expected),
)


QUIZ = Quiz(
    "quiz15",
    "Two strategies were trained with three seeds each. Over documents, one scores 66 to 79 and the other\n"
    "69 to 83. Seed by seed, the second is 2.9 to 4.9 above the first. All are intervals at 95%. Do the two differ?",
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
