"""Full fine-tuning: a search for the learning rate that goes on at both borders."""

import math
from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, kind, numbers


def _next_rates(losses, factor):
    finite = {rate: loss for rate, loss in losses.items() if math.isfinite(loss)}
    best = min(finite, key=finite.get)
    if best == max(losses):
        return [best * factor]
    return [best / factor] if best == min(losses) else []


def _over_all(losses, factor, choose=min):
    best = choose(losses, key=losses.get)
    return [best * factor] if best == max(losses) else [best / factor] if best == min(losses) else []


def _rates(given, *_):
    if not isinstance(given, list | tuple):
        raise Wrong(f"a list of rates is asked for, and this is {kind(given)}.")
    return numbers(given, len(given))


next_rates = function_exercise(
    "ex04_1",
    "which rate is tried next, for five searches",
    "Find the rate with the lowest loss first. Is it the highest or the lowest of all that were tried?",
    "A run that diverged has a loss of nan, and every comparison with nan is false: leave it out before you look for "
    "the lowest loss. Its rate was tried all the same.",
    right=_next_rates,
    cases=[
        ("for a best rate at the upper border", {1e-4: 4.8, 3e-4: 4.7, 1e-3: 4.5}, 3),
        ("for a best rate at the lower border", {1e-3: 4.5, 1e-4: 4.4, 1e-2: 6.0}, 10),
        ("for a best rate inside", {1e-2: 6.1, 1e-4: 4.8, 1e-3: 4.5}, 10),
        ("for a search whose highest rate diverged", {1e-4: 4.8, 1e-3: 4.5, 1e-2: math.nan}, 10),
        ("for a search whose first run diverged", {1e-1: math.nan, 1e-3: 4.5, 1e-4: 4.8}, 10),
    ],
    mistakes={
        "that is the best rate itself; the rate to try next is asked for.": lambda losses, factor: [
            min(losses, key=losses.get)
        ],
        "nan won the comparison: leave out the runs that diverged.": _over_all,
        "you looked for the highest loss.": partial(_over_all, choose=max),
        "a rate that diverged was tried, too: the best rate has a worse neighbour there.": lambda losses, factor: (
            _next_rates({rate: loss for rate, loss in losses.items() if math.isfinite(loss)}, factor)
        ),
        "the other border has to be looked at as well.": lambda losses, factor: [
            rate for rate in _next_rates(losses, factor) if rate > max(losses)
        ],
    },
    read=_rates,
    alike=lambda given, right: len(given) == len(right) and all(map(math.isclose, given, right)),
)


QUIZ = Quiz(
    "quiz04",
    "After 20 epochs on 25 sentences the training loss is 0.1. What do you know about unseen text?",
    {
        "a": "The model now predicts all text better.",
        "b": "Nothing, until unseen text is scored.",
        "c": "The model is ruined for unseen text.",
    },
    {
        "a": "no: it has learned those sentences by heart. In this lesson the validation loss rose meanwhile.",
        "b": "yes: the training loss says something about the training text only.",
        "c": "it may be, and here it became worse. But this number does not show it, and the validation loss does.",
    },
    right="b",
)
