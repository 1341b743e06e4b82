"""The PEFT family: the interval of a paired difference, and how much of a step's arithmetic a method saves."""

import math
from functools import partial

import numpy as np
from scipy import stats

from course.exercises import Quiz, function_exercise, numbers


def _alike(given, expected):
    return all(math.isclose(*pair, rel_tol=1e-4, abs_tol=1e-5) for pair in zip(given, expected, strict=True))


def _interval(new, lora, questions, axes=(0, 1), total=np.hypot.reduce, share=np.expm1):
    """The exercise's answer; its options make the mistakes."""
    means = [(new - lora).mean(axis) for axis in axes]
    half = total([stats.t.ppf(1 - 0.025 / questions, len(mean) - 1) * stats.sem(mean) for mean in means])
    return tuple(100 * share((new - lora).mean() + end) for end in (-half, half))


DOCUMENT, SEED = np.arange(12)[:, None], np.arange(3)
LORA = 3 + DOCUMENT % 5 / 2 + 0.02 * SEED
NEW = LORA + 0.1 + 0.1 * (-1) ** DOCUMENT + 0.02 * SEED**2
interval = function_exercise(
    "ex08_1",
    "the ends of the interval for 12 documents and 3 seeds, with one question and with 13",
    "Subtract first. `apart.mean(0)` has a mean for each seed, `apart.mean(1)` one for each document.",
    "Of each: `stats.t.ppf(1 - 0.025 / questions, len(means) - 1) * stats.sem(means)`; then the root of the squares.",
    right=_interval,
    cases=[("for one question", NEW, LORA, 1), ("for one of 13 questions", NEW, LORA, 13)],
    mistakes={
        "these ends allow for other documents, but not for other seeds.": partial(_interval, axes=(1,)),
        "these ends allow for other seeds, but not for other documents.": partial(_interval, axes=(0,)),
        "the two parts were added. Add their squares, and take the root.": partial(_interval, total=sum),
        "these are nats, times 100. `np.expm1` gives shares of perplexity.": partial(_interval, share=lambda n: n),
        "each of 13 questions needs an interval at 1 - 0.05/13.": lambda new, lora, _: _interval(new, lora, 1),
    },
    read=lambda given, *losses: numbers(given, 2),
    alike=_alike,
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
        "c": "no: thin matrices cost next to nothing, but those in block 0 are as far down as BitFit's. "
        "It needs about as much.",
        "d": "the forward pass does; backpropagation only runs down to the lowest parameter that is trained.",
    },
    right="a",
)
