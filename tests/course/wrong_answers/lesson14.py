"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import numpy as np
from scipy import stats

from tlkit.evidence.statistics import paired_differences, seed_intervals


def _sides(runs, one, other):
    by_seed = runs.pivot(index="seed", columns="strategy", values="perplexity")
    return by_seed[one], by_seed[other]


def _differences(runs, one, other):
    left, right = _sides(runs, one, other)
    return np.array(left - right)


def _around(values, half):
    return values.mean() - half, values.mean() + half


def numpy_spread(runs, one, other):
    values = _differences(runs, one, other)
    return _around(values, stats.t.ppf(0.975, len(values) - 1) * np.std(values) / len(values) ** 0.5)


def many_runs(runs, one, other):
    values = _differences(runs, one, other)
    return _around(values, 1.96 * values.std(ddof=1) / len(values) ** 0.5)


def one_sided(runs, one, other):
    values = _differences(runs, one, other)
    return _around(values, stats.t.ppf(0.95, len(values) - 1) * stats.sem(values))


def no_root(runs, one, other):
    values = _differences(runs, one, other)
    return _around(values, stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1))


def as_they_stand(runs, one, other):
    left, right = (runs[runs.strategy == name].perplexity.to_numpy() for name in (one, other))
    return tuple(stats.ttest_1samp(left - right, 0).confidence_interval())


def by_row_index(runs, one, other):
    values = runs[runs.strategy == one].perplexity - runs[runs.strategy == other].perplexity
    return _around(values, stats.t.ppf(0.975, len(values) - 1) * values.std() / len(values) ** 0.5)


def intervals_subtracted(runs, one, other):
    found = seed_intervals(runs)
    return found.low[one] - found.high[other], found.high[one] - found.low[other]


def wrong_way_round(runs, one, other):
    return tuple(paired_differences(runs, one).loc[other, ["low", "high"]])


def _means(record):
    return record.groupby(["strategy", "learning_rate"])[["validation_perplexity", "test_perplexity"]].mean()


def _at(record, chosen):
    return {name: _means(record).test_perplexity[name][rate] for name, rate in chosen.items()}


def peeked(record):
    return _means(record).test_perplexity.groupby("strategy").min().to_dict()


def best_test_run(record):
    return record.groupby("strategy").test_perplexity.min()


def luckiest_run(record):
    best = record.loc[record.groupby("strategy").validation_perplexity.idxmin()]
    return dict(zip(best.strategy, best.test_perplexity, strict=True))


def rate_of_luckiest_run(record):
    best = record.loc[record.groupby("strategy").validation_perplexity.idxmin()]
    return _at(record, dict(zip(best.strategy, best.learning_rate, strict=True)))


def one_rate(record):
    rate = record.groupby("learning_rate").validation_perplexity.mean().idxmin()
    return _at(record, dict.fromkeys(record.strategy.unique(), rate))


def without_the_diverged(record):
    from_finite = record[np.isfinite(record.validation_perplexity)]
    chosen = _means(from_finite).validation_perplexity.groupby("strategy").idxmin()
    return {name: _means(from_finite).test_perplexity[place] for name, place in chosen.items()}


def tuning_scores(record):
    return _means(record).validation_perplexity.groupby("strategy").min()


def rates(record):
    return {name: place[1] for name, place in _means(record).validation_perplexity.groupby("strategy").idxmin().items()}


def best_seed(record):
    return {
        name: record[(record.strategy == name) & (record.learning_rate == rate)].test_perplexity.min()
        for name, rate in rates(record).items()
    }


WRONG = {
    "ex14_1": [
        (0.5, "intervals belong to pairs"),
        (0.45, "compares all with one of them only"),
        (1.05, "for seven strategies"),
        (4.5, "counts every pair twice"),
        (5, "strategies with themselves"),
        (45, "how many pairs there are"),
        (42.75, "left tied"),
        (1 - 0.95**45, "the chance of at least one"),
        (2, "do not round"),
        (225, "more alarms than there are pairs"),
        ("2", "a number is asked for"),
        (7, "7 is not it"),
    ],
    "ex14_2": [
        (numpy_spread, "divides by n where it should by n - 1"),
        (many_runs, "takes 1.96, which is for many runs"),
        (one_sided, "an interval at 90%"),
        (no_root, "that of one run"),
        (as_they_stand, "as they stand in the table"),
        (by_row_index, "rows of two strategies never share one"),
        (intervals_subtracted, "takes one interval from the other"),
        (
            lambda runs, one, other: stats.ttest_ind(*_sides(runs, one, other)).confidence_interval(),
            "treats the runs as independent",
        ),
        (
            lambda runs, one, other: stats.ttest_ind(*_sides(runs, one, other), equal_var=False).confidence_interval(),
            "treats the runs as independent",
        ),
        (wrong_way_round, "has the wrong sign"),
        (lambda *all_of_it: wrong_way_round(*all_of_it)[::-1], "the low end is above the high one"),
        (lambda runs, one, other: _differences(runs, one, other).mean(), "2 numbers are asked for"),
    ],
    "ex14_3": [
        (peeked, "chosen by the test text"),
        (best_test_run, "chosen by the test text"),
        (luckiest_run, "the luckiest single run"),
        (rate_of_luckiest_run, "the luckiest single run"),
        (one_rate, "all got one rate"),
        (without_the_diverged, "runs that diverged were left out"),
        (tuning_scores, "scores on the tuning text"),
        (rates, "these are the learning rates"),
        (best_seed, "only the best seed is reported"),
        (lambda record: record.groupby("strategy").test_perplexity.mean(), "a mean over all rates"),
        (_means, "a dict is asked for"),
        (lambda record: {"full": 86.0}, "the keys are not the strategies"),
    ],
}
