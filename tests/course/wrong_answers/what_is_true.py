"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import math
from functools import partial

from scipy import stats

from tlkit.evidence.statistics import paired_differences


def _around(values, half):
    return values.mean() - half, values.mean() + half


def by_row_index(runs, one, other):
    values = runs[runs.strategy == one].perplexity - runs[runs.strategy == other].perplexity
    return _around(values, stats.t.ppf(0.975, len(values) - 1) * values.std() / len(values) ** 0.5)


def wrong_way_round(runs, one, other):
    return tuple(paired_differences(runs, one).loc[other, ["low", "high"]])


def audited(report, nats=math.log, apart=abs, seeds=3, part=1, least=0, always=False):
    """The audit of exercise 16.1; the options make it wrong, each as somebody does."""
    everything, trained = report["parameters"], report["trained"]
    evaluation = apart(nats(report["baseline"]) - report["first_loss"]) > 1
    return {
        word
        for word, holds in {
            "evaluation": evaluation,
            "loading": (always or not evaluation) and report["baseline"] >= report["vocabulary"],
            "count": abs(sum(report["parts"]) - trained) > least,
            "sample": report["tokens"] < 1000 or report["seeds"] < seeds,
            "speed": report["speedup"] > (part * 8 + 96) * everything / (part * 8 * everything + 96 * trained),
        }.items()
        if holds
    }


WRONG = {
    "ex15_1": [
        (by_row_index, "rows of two strategies never share one"),
        (lambda *all_of_it: wrong_way_round(*all_of_it)[::-1], "the low end is above the high one"),
    ],
    "ex15_2": [
        (lambda record: {"full": 86.0}, "the keys are not the strategies"),
    ],
    "ex16_1": [
        (partial(audited, nats=float), "cannot be compared directly"),
        (partial(audited, apart=float), "in either direction"),
        (partial(audited, seeds=0), "both have to be enough"),
        (partial(audited, part=0), "shrinks by less than what is trained"),
        (partial(audited, least=1000), "one parameter is enough"),
        (partial(audited, always=True), "would be as bad in its first training step"),
        (lambda report: "sample", "expected a set of"),
        (lambda report: audited(report) - {"loading"}, "knows nothing"),
    ],
}
