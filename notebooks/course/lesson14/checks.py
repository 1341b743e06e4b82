"""The comparison: how many pairs part by chance, a difference seed by seed, a rate chosen without the test."""

import math
from itertools import combinations

import pandas as pd

from course.exercises import Quiz, Wrong, called, close, exercise, near, number, numbers


@exercise(
    "ex14_1",
    1,
    "the expected number of false alarms among all pairs of ten strategies, to one percent",
    "First count the pairs: A against B is the same pair as B against A.",
    "For one pair the chance of a false alarm is 5%. Expected numbers add up over the pairs, also where pairs depend "
    "on each other.",
)
def false_alarms(answer: object) -> None:
    """Judge the expected number of false alarms among all pairs of ten strategies."""
    pairs = len(list(combinations(range(10), 2)))
    told = {
        10: "that takes one chance for each strategy; intervals belong to pairs.",
        9: "that compares all with one of them only; every pair is asked for.",
        21: "that is for seven strategies, as in this lesson; here are ten.",
        2 * pairs: "that counts every pair twice, once from each side.",
        100: "that pairs strategies with themselves too, and counts the others twice.",
    }
    for count, why in told.items():
        if near(answer, count * 0.05):
            raise Wrong(why)
    if near(answer, pairs):
        raise Wrong("that is how many pairs there are; only a few of them will be called different.")
    if near(answer, pairs * 0.95):
        raise Wrong("that is how many pairs you expect to be left tied, as they should be.")
    if near(answer, 1 - 0.95**pairs):
        raise Wrong("that looks like the chance of at least one false alarm; the expected number is asked for.")
    if near(answer, 5 * pairs):
        raise Wrong("5% is five in a hundred, and this is more alarms than there are pairs.")
    if float(answer) in (2, 3):
        raise Wrong("an expected number is a mean and need not be whole: do not round it.")
    if not near(answer, pairs * 0.05):
        raise Wrong(f"{float(answer):.4g} is not it.")


@exercise(
    "ex14_2",
    2,
    "both ends of the interval, for three tables of runs with 3, 4 and 6 seeds",
    "First one difference for each seed. `runs.pivot(index=..., columns=..., values=...)` puts the two strategies side "
    "by side, a row each seed.",
    "The mean of the n differences, minus and plus t times their standard deviation over the root of n. Their "
    "standard deviation divides by n - 1, as pandas does and numpy does not.",
    "t is `stats.t.ppf(0.975, n - 1)`: 2.5% are left out on each side.",
)
def paired_interval(answer: object) -> None:
    """Judge a function for Student's interval of differences, seed by seed."""
    for table, one, other in _tables():
        scores = table.set_index(["strategy", "seed"]).perplexity
        left, right = scores[one].sort_index(), scores[other].sort_index()
        given = called(answer, table.copy(), one, other)
        case = f"with {len(left)} seeds, {one} minus {other},"
        if isinstance(given, tuple | list) and any(value != value for value in given):
            raise Wrong(
                f"{case} your interval is nan. pandas subtracts where the *index* is the same, and rows of two "
                "strategies never share one: bring them side by side by seed first."
            )
        given = numbers(given, 2)
        differences = (left - right).tolist()
        if close(given, _interval(differences), within=6e-3):
            continue
        if given[0] > given[1]:
            raise Wrong(f"{case} the low end is above the high one.")
        rows = [table[table.strategy == name].perplexity for name in (one, other)]
        unsorted = [value - against for value, against in zip(*rows, strict=True)]
        for wrong, why in (
            (_interval([-value for value in differences]), "has the wrong sign: the second is taken from the first."),
            (_interval(unsorted), "pairs the runs as they stand in the table; what belongs together has one seed."),
            (_interval(differences, spread=0), "divides by n where it should by n - 1: numpy's `std` does, unasked."),
            (_interval(differences, t=1.96), "takes 1.96, which is for many runs; Student's t is larger for few."),
            (_interval(differences, tail=0.95), "leaves 5% out on each side: that is an interval at 90%."),
            (_interval(differences, one_run=True), "is that of one run: the mean of n is surer, by the root of n."),
            (_apart(left, right), "takes one interval from the other: what luck did to both is still in it."),
            (_unpaired(left, right, True), "treats the runs as independent; with one seed both met the same luck."),
            (_unpaired(left, right, False), "treats the runs as independent; with one seed both met the same luck."),
        ):
            if close(given, wrong, within=6e-3):
                raise Wrong(f"{case} your interval {why}")
        raise Wrong(f"{case} your interval is {given[0]:.4g} to {given[1]:.4g}.")


@exercise(
    "ex14_3",
    3,
    "the scores of two records of tuning: which rate was chosen, by what, and what was reported for it",
    "Two questions, two texts: one column may choose the rate, the other may only be read at the end.",
    "A rate is as good as its mean over all its seeds. A run that diverged has infinity, and so has the mean of a rate "
    "that cannot be relied on: leave such runs in.",
    "With groupby, make both means for each strategy and rate. For each strategy take the rate at which the validation "
    "mean is lowest (`idxmin`), and look the test mean up at that rate.",
)
def fair_scores(answer: object) -> None:
    """Judge a function that chooses rates by validation text and reports test scores."""
    for record in _records():
        given = called(answer, record.copy())
        given = given.to_dict() if isinstance(given, pd.Series) else given
        if not isinstance(given, dict):
            raise Wrong(f"a dict is asked for, from each strategy to its score, and this is a {type(given).__name__}.")
        names = list(dict.fromkeys(record.strategy))
        case = f"for a record of {' and '.join(names)}"
        if given.keys() != set(names):
            raise Wrong(f"{case} the keys are not the strategies: {', '.join(map(repr, given))[:60] or 'none'}.")
        for value in given.values():
            number(value)
        right, mistakes = _fair_and_unfair(record)
        if _alike(given, right):
            continue
        for wrong, why in mistakes:
            if _alike(given, wrong):
                raise Wrong(f"{case} {why}")
        raise Wrong(f"{case} your scores are {', '.join(f'{value:.4g}' for value in given.values())}.")


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
        yield table.sample(frac=1, random_state=1).reset_index(drop=True), one, other


def _interval(values, *, t=None, tail=0.975, spread=1, one_run=False) -> tuple[float, float]:
    """Student's interval of the mean; the options make it wrong, each as somebody does."""
    from scipy import stats

    count, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - spread))
    half = (t or stats.t.ppf(tail, count - 1)) * deviation / (1 if one_run else math.sqrt(count))
    return mean - half, mean + half


def _apart(left, right) -> tuple[float, float]:
    (low, high), (other_low, other_high) = (_interval(left.tolist()), _interval(right.tolist()))
    return low - other_high, high - other_low


def _unpaired(left, right, equal_spread: bool) -> tuple[float, float]:
    from scipy import stats

    return tuple(stats.ttest_ind(left, right, equal_var=equal_spread).confidence_interval(0.95))


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
        columns = ["strategy", "learning_rate", "seed", "validation_perplexity", "test_perplexity"]
        yield pd.DataFrame(
            [
                (name, rate, seed, *pair)
                for name, rates in scores.items()
                for rate, pairs in rates.items()
                for seed, pair in enumerate(pairs)
            ],
            columns=columns,
        )


def _fair_and_unfair(record):
    """The scores asked for, and those of the usual mistakes, each with what is wrong with it."""
    names, rates = (list(dict.fromkeys(record[column])) for column in ("strategy", "learning_rate"))
    runs = {
        (name, rate): list(zip(part.validation_perplexity, part.test_perplexity, strict=True))
        for (name, rate), part in record.groupby(["strategy", "learning_rate"])
    }

    def mean(values):
        values = list(values)
        return sum(values) / len(values)

    def chosen(score):
        return {name: min(rates, key=lambda rate: score(runs[name, rate])) for name in names}

    def tested(chosen_rates):
        return {name: mean(test for _, test in runs[name, rate]) for name, rate in chosen_rates.items()}

    def validation(pairs):
        return mean(score for score, _ in pairs)

    fair = chosen(validation)
    rows = {name: [pair for rate in rates for pair in runs[name, rate]] for name in names}
    one = min(rates, key=lambda rate: sum(validation(runs[name, rate]) for name in names))
    lucky = chosen(lambda pairs: min(pairs)[0])
    survivors = chosen(lambda pairs: mean(score for score, _ in pairs if math.isfinite(score)))
    left = {name: [test for _, test in runs[name, rate] if math.isfinite(test)] for name, rate in survivors.items()}
    by_luck = "the rate is that of the luckiest single run; the next seed may be the unlucky one."
    peeked = "the rate was chosen by the test text. Then it is tuning text too, and nothing is left to test with."
    dropped = "runs that diverged were left out, and the rate that made them diverge was chosen for the others."
    return tested(fair), [
        ({name: validation(runs[name, rate]) for name, rate in fair.items()}, "these are scores on the tuning text."),
        (fair, "these are the learning rates; the score that each reaches is asked for."),
        (tested(chosen(lambda pairs: mean(test for _, test in pairs))), peeked),
        ({name: min(test for _, test in rows[name]) for name in names}, peeked),
        (tested(lucky), by_luck),
        ({name: min(rows[name])[1] for name in names}, by_luck),
        (tested(dict.fromkeys(names, one)), "all got one rate; which one it is decides who looks good."),
        (tested(survivors), dropped),
        ({name: mean(tests) for name, tests in left.items()}, dropped),
        (
            {name: mean(test for _, test in rows[name]) for name in names},
            "the score is a mean over all rates, also those that nobody would use.",
        ),
        (
            {name: min(test for _, test in runs[name, rate]) for name, rate in fair.items()},
            "the rate is chosen well, and then only the best seed is reported: take all seeds of that rate.",
        ),
    ]


def _alike(given, expected) -> bool:
    return all(math.isclose(float(given[name]), expected[name], abs_tol=0.01) for name in expected)


QUIZ = Quiz(
    "quiz14",
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
TASKS = (false_alarms, paired_interval, fair_scores, QUIZ)
