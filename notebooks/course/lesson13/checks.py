"""Classification: from which threshold on a classifier is right often enough to decide by itself."""

from itertools import takewhile
from operator import ge, gt

import numpy as np

from course.exercises import Quiz, function_exercise


def _cases():
    """In the first the share falls below `wanted` and rises again; in the second it is just reached."""
    for story, wanted, largest, right in (
        ("for 6 texts", 0.7, [0.7, 0.9, 0.4, 0.8, 0.6, 0.5], [False, True, False, True, True, False]),
        ("where `wanted` is just reached", 0.75, [0.6, 0.9, 0.8, 0.7], [False, True, True, True]),
    ):
        yield story, np.array(largest), np.array(right), wanted


def _lowest(largest, right, wanted, choose=min, decides=ge, reaches=ge, of_all=False):
    enough = [t for t in largest.tolist() if reaches(_share(right, decides(largest, t), of_all), wanted)]
    return choose(enough, default=1.0)


def _share(right, sure, of_all=False):
    return (right & sure).sum() / (len(right) if of_all else max(1, sure.sum()))


def _until_the_first_failure(largest, right, wanted):
    falling = sorted(largest.tolist(), reverse=True)
    return [1.0, *takewhile(lambda t: _share(right, largest >= t) >= wanted, falling)][-1]


def _reached(largest, right, wanted):
    return _share(right, largest >= _lowest(largest, right, wanted))


lowest = function_exercise(
    "ex13_1",
    "the threshold, for two sets of texts; in one of them the wanted share is just reached",
    "Go through `sorted(largest)`, from the lowest: each value is one threshold to try.",
    "`sure = largest >= threshold` is True for the texts that are decided.",
    "`right[sure].mean()` is the share. Return the first threshold where it reaches `wanted`.",
    right=_lowest,
    cases=_cases,
    mistakes={
        "this is the highest threshold that reaches the share; a lower one decides more texts.": (
            lambda *given: _lowest(*given, choose=max)
        ),
        "below a threshold that fails, a lower one may reach the share again: try all.": _until_the_first_failure,
        "a text exactly at the threshold is decided, too.": lambda *given: _lowest(*given, decides=gt),
        "a share of exactly `wanted` is enough.": lambda *given: _lowest(*given, reaches=gt),
        "the right ones are divided by all texts, and not by those that are decided.": (
            lambda *given: _lowest(*given, of_all=True)
        ),
        "this is the share that is reached; the threshold is asked for.": _reached,
    },
)


QUIZ = Quiz(
    "quiz13",
    "The rows of a batch are padded on the right, and a program reads the class from the last column of the hidden "
    "states, `hidden[:, -1]`. It runs without an error. What is wrong?",
    {
        "a": "Nothing: a causal model does not see the padding.",
        "b": "Every text gets the same class, because all rows end with the same token.",
        "c": "For all but the longest text the class is read off padding, so it depends on the other texts of the "
        "batch.",
        "d": "Only the gradients are wrong; the classes themselves are right.",
    },
    {
        "a": "no: the text's own tokens do not see the padding behind them, but the last column of a shorter row is "
        "padding itself.",
        "b": "no: the padding does see the text before it, so its hidden states differ from text to text.",
        "c": "yes: how much padding a row has depends on the longest text beside it. Read the state of the last token "
        "that is no padding.",
        "d": "no: the logits themselves come from the wrong hidden state.",
    },
    right="c",
)
