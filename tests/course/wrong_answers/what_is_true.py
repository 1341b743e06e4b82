"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import math
import re
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


def published_fault(name, count):
    return any(f"layers.{number}" in name for number in range(count))


def as_text(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and found[1] < str(count)


def one_too_many(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) <= count


def the_others(name, count):
    found = re.search(r"layers\.(\d+)\.", name)
    return found is not None and int(found[1]) >= count


def without_the_rest(name, count):
    return int(re.search(r"layers\.(\d+)\.", name)[1]) < count


def also_the_embedding(name, count):
    return "embed" in name or any(f"layers.{number}." in name for number in range(count))


def at_the_start(name, count):
    return any(name.startswith(f"model.layers.{number}.") for number in range(count))


def weights_alone(name, count):
    return name.endswith("proj.weight") and any(f"layers.{number}." in name for number in range(count))


def audited(report, nats=math.log, apart=abs, seeds=3, part=1, least=0, always=False):
    """The audit of exercise 16.3; the options make it wrong, each as somebody does."""
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
    "ex16_2": [
        (published_fault, "also the beginning of others"),
        (as_text, "compares numbers as text"),
        (one_too_many, "off by one"),
        (without_the_rest, "for the name model.embed_tokens.weight, your function stopped"),
        (also_the_embedding, "what is in no block"),
        (at_the_start, "more in front"),
        (weights_alone, "in part"),
        (the_others, "takes all the others"),
    ],
    "ex16_3": [
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
