"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import math
from functools import partial


def audited(report, nats=math.log, apart=abs, seeds=3, part=1, least=0, nothing=min, late=False, extra=1.5):
    """The audit of exercise 16.1; the options make it wrong, each as somebody does."""
    everything, trained = report["parameters"], report["trained"]
    loss, baseline = report["first_loss"], nats(report["baseline"])
    evaluation = apart(baseline - loss) > 1
    loading = nothing(loss, baseline) >= math.log(report["vocabulary"]) - 1
    return {
        word
        for word, holds in {
            "evaluation": evaluation and (late or not loading),
            "loading": loading and not (late and evaluation),
            "count": abs(sum(report["parts"]) - trained) > least,
            "sample": report["tokens"] < 1000 or report["seeds"] < seeds,
            "speed": report["speedup"] - extra > (part * 8 + 88) * everything / (part * 8 * everything + 88 * trained),
        }.items()
        if holds
    }


WRONG = {
    "ex15_1": [
        (lambda record: {"full": 86.0}, "the keys are not the strategies"),
    ],
    "ex16_1": [
        (partial(audited, nats=float), "cannot be compared directly"),
        (partial(audited, apart=float), "in either direction"),
        (partial(audited, seeds=0), "both have to be enough"),
        (partial(audited, part=0), "shrinks by less than what is trained"),
        (partial(audited, extra=0), "less than 1.5 plus the ratio"),
        (partial(audited, least=1000), "one parameter is enough"),
        (partial(audited, nothing=max), "would be as bad in its first training step"),
        (partial(audited, late=True), "for symptom 2, 'loading' is missing"),
        (lambda report: "sample", "expected a set of"),
        (lambda report: audited(report) - {"loading"}, "knows nothing"),
    ],
}
