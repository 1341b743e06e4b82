"""Classification: how often a classifier that may hand over decides by itself."""

from functools import partial

import torch

from course.exercises import Quiz, close, function_exercise, numbers


def _cases():
    """The second has a text exactly at the threshold; in the third, sure texts are mostly wrong."""
    for story, threshold, labels, rows in (
        ("for 4 texts", 0.6, [0, 1, 1, 0], [[0.9, 0.05, 0.05], [0.2, 0.7, 0.1], [0.3, 0.4, 0.3], [0.25, 0.65, 0.1]]),
        ("at the threshold", 0.5, [1, 0, 0], [[0.25, 0.75], [0.5, 0.5], [0.125, 0.875]]),
        ("for 5 texts", 0.8, [0, 0, 1, 1, 0], [[0.1, 0.9], [0.15, 0.85], [0.05, 0.95], [0.3, 0.7], [0.6, 0.4]]),
    ):
        yield story, torch.tensor(rows), torch.tensor(labels), threshold


def _shares(sure, right):
    return sure.float().mean().item(), right[sure].float().mean().item()


def _largest(probabilities, labels):
    return probabilities.max(1).values, probabilities.argmax(1) == labels


def _decided(probabilities, labels, threshold):
    largest, right = _largest(probabilities, labels)
    return _shares(largest >= threshold, right)


def _every_text(probabilities, labels, threshold):
    largest, right = _largest(probabilities, labels)
    return (largest >= threshold).float().mean().item(), right.float().mean().item()


def _above(probabilities, labels, threshold):
    largest, right = _largest(probabilities, labels)
    return _shares(largest > threshold, right)


def _true_class(probabilities, labels, threshold):
    return _shares(probabilities.gather(1, labels[:, None])[:, 0] >= threshold, _largest(probabilities, labels)[1])


def _of_all(probabilities, labels, threshold):
    largest, right = _largest(probabilities, labels)
    return (largest >= threshold).float().mean().item(), (right & (largest >= threshold)).float().mean().item()


def _counted(probabilities, labels, threshold):
    share, accuracy = _decided(probabilities, labels, threshold)
    return share * len(labels), accuracy


def _handed_over(probabilities, labels, threshold):
    share, accuracy = _decided(probabilities, labels, threshold)
    return 1 - share, accuracy


decided = function_exercise(
    "ex13_1",
    "both numbers, for three sets of texts, in one of which a text lies exactly at the threshold",
    "`probabilities.max(1)` has two parts: `values`, how sure the classifier is of a text, and `indices`, its class.",
    "`sure = values >= threshold` is True for texts that it decides. The mean of `sure.float()` is the first number.",
    "The second: `(indices == labels)[sure].float().mean()`.",
    right=_decided,
    cases=_cases,
    mistakes={
        "the accuracy is that of all texts; only those count that the classifier decides.": _every_text,
        "a text exactly at the threshold is decided, too.": _above,
        "you look at the probability of the true class, which nobody knows when the classifier is in use.": _true_class,
        "the right ones are divided by all texts, and not by those that are decided.": _of_all,
        "the first number is a count; a share is asked for.": _counted,
        "the first number is the share that is handed over; the other share is asked for.": _handed_over,
    },
    read=lambda given, *arguments: numbers(given, 2),
    alike=partial(close, within=1e-3),
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
