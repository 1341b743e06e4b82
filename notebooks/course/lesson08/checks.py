"""The PEFT family: whether another method is worth changing to, and what arithmetic one saves."""

from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from course.exercises import Quiz, function_exercise


def _runs():
    """Losses of two methods; each case makes another mistake show."""
    documents = np.arange(20)[:, None]
    for story, gain, alternating, seeds in (
        ("where documents are hard for both", 0.1, 0.02, 0.01),
        ("where documents disagree", 0.1, 0.3, 0.001),
        ("where seeds disagree widely", 0.1, 0.02, 0.09),
        ("where seeds disagree", 0.1, 0.02, 0.06),
        ("where the gain is small", 0.01, 0.002, 0.001),
    ):
        lora = pd.DataFrame(3 + documents % 7 / 2 + np.zeros(3))
        yield story, lora, lora - gain + alternating * (-1.0) ** documents + [-seeds, 0, seeds], 0.02


def _decide(lora, new, margin, axes=(1, 0), t=stats.t.ppf, least=1.0, unsure="cannot tell", parts=lambda x, y: [y - x]):
    """The exercise's answer; its options make the mistakes."""
    means = [part.mean(axis=axis) for axis in axes for part in parts(lora, new)]
    half = sum((t(0.975, len(each) - 1) * each.sem()) ** 2 for each in means) ** 0.5
    low, high = (new - lora).to_numpy().mean() + np.array([-half, half])
    return "switch" if high < -least * margin else "stay" if low > -least * margin else unsure


decide = function_exercise(
    "ex08_1",
    "five studies, in which documents, seeds or the margin decide",
    "Subtract first. `apart.mean(axis=1)` has a mean for each document, and `apart.mean(axis=0)` one for each seed.",
    "Each has a standard error, `means.sem()`, and its own `stats.t.ppf(0.975, len(means) - 1)`. Add the squares.",
    right=_decide,
    cases=_runs,
    mistakes={
        "what makes a document hard for both cancels if you subtract first.": partial(_decide, parts=lambda *x: x),
        "the seeds alone speak for it. Other documents may not.": partial(_decide, axes=[0]),
        "three seeds need Student's t, not 1.96.": partial(_decide, t=lambda level, _: stats.norm.ppf(level)),
        "the documents alone speak for it. Other seeds may not.": partial(_decide, axes=[1]),
        "it is surely better, but is it by `margin`?": partial(_decide, least=0.0),
        "it pays in a part of the interval, which is no reason to stay.": partial(_decide, unsure="stay"),
        "it is the other way round: a lower loss is better.": lambda x, y, margin: _decide(y, x, margin),
    },
    read=lambda given, *_: given,
    alike=lambda given, right: isinstance(given, str) and given == right,
)


QUIZ = Quiz(
    "quiz08",
    "BitFit trains 0.08% of the bundled model and still needs 69% of full fine-tuning's arithmetic. "
    "What brings it down to 42.5%?",
    {
        "a": "Train the bias vectors of the last block only.",
        "b": "Train the bias vectors of the queries only, in every block.",
        "c": "Use LoRA of rank 1 instead.",
        "d": "Nothing: forward pass and backpropagation always run through the whole network.",
    },
    {
        "a": "yes: the forward pass is whole, but backpropagation ends at the lowest parameter that is trained.",
        "b": "no: that is half of the biases, but one in block 0 is enough: backpropagation must reach it.",
        "c": "no: thin matrices cost next to nothing, but those in block 0 are as far down as BitFit's.",
        "d": "the forward pass does; backpropagation only runs down to the lowest trained parameter.",
    },
    right="a",
)
