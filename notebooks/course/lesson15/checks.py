"""The comparison: a difference seed by seed, a rate chosen without the test."""

import math
from functools import partial

import pandas as pd
from scipy import stats

from course.exercises import Quiz, Wrong, close, function_exercise, kind, number, numbers


def _tables():
    """Runs in no order, beside a strategy that nobody asked for; a seed moves all strategies alike."""
    for one, other, perplexities in (
        ("lora", "full", {"full": (70.2, 74.9, 72.0), "lora": (73.1, 77.0, 75.2), "bitfit": (105.3, 106.4, 105.8)}),
        (
            "lora",
            "qlora",
            {"lora": (81.5, 78.2, 79.9, 84.0), "qlora": (81.9, 79.6, 79.7, 85.1), "full": (72.1, 70.3, 71.0, 74.4)},
        ),
        (
            "full",
            "last_layers",
            {
                "full": (71.0, 76.2, 69.8, 73.3, 74.0, 72.5),
                "last_layers": (74.1, 80.9, 73.5, 76.0, 78.8, 75.2),
                "bitfit": (104.8, 106.0, 105.1, 105.5, 106.2, 105.0),
            },
        ),
    ):
        rows = [(name, seed, value) for name, values in perplexities.items() for seed, value in enumerate(values)]
        table = pd.DataFrame(rows, columns=["strategy", "seed", "perplexity"])
        story = f"with {len(table) // 3} seeds, {one} minus {other}"
        yield story, table.sample(frac=1, random_state=1).reset_index(drop=True), one, other


def _sides(runs, one, other):
    by_seed = runs.pivot(index="seed", columns="strategy", values="perplexity")
    return by_seed[one], by_seed[other]


def _interval(values, *, t=None, tail=0.975, spread=1, one_run=False) -> tuple[float, float]:
    """Student's interval of the mean; the options make it wrong, each as somebody does."""
    count, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - spread))
    half = (t or stats.t.ppf(tail, count - 1)) * deviation / (1 if one_run else math.sqrt(count))
    return mean - half, mean + half


def _paired(runs, one, other, **wrong) -> tuple[float, float]:
    left, right = _sides(runs, one, other)
    return _interval(list(left - right), **wrong)


def _unpaired(runs, one, other) -> tuple[float, float]:
    return tuple(stats.ttest_ind(*_sides(runs, one, other), equal_var=False).confidence_interval())


def _as_they_stand(runs, one, other) -> tuple[float, float]:
    left, right = (runs[runs.strategy == name].perplexity.to_numpy() for name in (one, other))
    return _interval(left - right)


def _apart(runs, one, other) -> tuple[float, float]:
    (low, high), (other_low, other_high) = (_interval(list(side)) for side in _sides(runs, one, other))
    return low - other_high, high - other_low


def _two_ends(given, runs, one, other):
    if isinstance(given, tuple | list) and any(value != value for value in given):
        raise Wrong(
            "your interval is nan. pandas subtracts where the *index* is the same, and rows of two strategies never "
            "share one: bring them side by side by seed first."
        )
    low, high = numbers(given, 2)
    if low > high:
        raise Wrong("the low end is above the high one.")
    return low, high


paired_interval = function_exercise(
    "ex15_1",
    "both ends of the interval, for three tables of runs with 3, 4 and 6 seeds",
    "First one difference for each seed. `runs.pivot(index=..., columns=..., values=...)` puts the two strategies side "
    "by side, a row each seed.",
    "The mean of the n differences, minus and plus t times their standard deviation over the root of n. Their "
    "standard deviation divides by n - 1, as pandas does and numpy does not.",
    "t is `stats.t.ppf(0.975, n - 1)`: 2.5% are left out on each side.",
    right=_paired,
    cases=_tables,
    mistakes={
        "it has the wrong sign: the second is taken from the first.": lambda runs, one, other: _paired(
            runs, other, one
        ),
        "it pairs the runs as they stand in the table; what belongs together has one seed.": _as_they_stand,
        "it divides by n where it should by n - 1: numpy's `std` does, unasked.": partial(_paired, spread=0),
        "it takes 1.96, which is for many runs; Student's t is larger for few.": partial(_paired, t=1.96),
        "it leaves 5% out on each side: that is an interval at 90%.": partial(_paired, tail=0.95),
        "it is that of one run: the mean of n is surer, by the root of n.": partial(_paired, one_run=True),
        "it takes one interval from the other: what luck did to both is still in it.": _apart,
        "it treats the runs as independent; with one seed both met the same luck.": _unpaired,
    },
    read=_two_ends,
    alike=partial(close, within=6e-3),
)


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
    "ex15_2",
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
