"""Full fine-tuning: from loss to perplexity, gain against cost, stopping in time."""

import math
from functools import partial

from course.exercises import Quiz, Wrong, called, close, exercise, function_exercise, number, number_exercise, numbers

perplexity_of_a_loss = number_exercise(
    "ex04_1",
    "the perplexity of a loss of 3.1 nats, to one percent",
    "Perplexity undoes the logarithm in the loss. Which logarithm is it, when the unit is a nat?",
    "math.exp is the inverse of math.log.",
    right=math.exp(3.1),
    mistakes={
        "that is the loss itself, in nats.": 3.1,
        "that takes the loss for bits: a nat belongs to the natural logarithm.": 2**3.1,
        "that is the wrong way round: the loss is a logarithm already.": math.log(3.1),
    },
)


def _gain_and_cost(before, after, general_before, general_after):
    return 100 * (1 - after / before), 100 * (general_after / general_before - 1)


gain_and_cost = function_exercise(
    "ex04_2",
    "gain and cost in percent, for three pairs of scores",
    "Both are changes in relation to what was there before.",
    "The gain is what went away: 100 * (1 - after / before). The cost is what came on top.",
    right=_gain_and_cost,
    cases=[
        ("for 120 to 60 on Rust and 40 to 50 elsewhere", 120, 60, 40, 50),
        ("for 100 to 80 on Rust and 40 to 40 elsewhere", 100, 80, 40, 40),
        ("for 80 to 20 on Rust and 30 to 60 elsewhere", 80, 20, 30, 60),
    ],
    mistakes={
        "these are shares; percent are asked for.": lambda *scores: tuple(x / 100 for x in _gain_and_cost(*scores)),
        "gain and cost are in each other's place.": lambda *scores: _gain_and_cost(*scores)[::-1],
        "the gain has the wrong sign: perplexity that falls is a gain.": lambda before, after, *general: (
            100 * (after / before - 1),
            _gain_and_cost(before, after, *general)[1],
        ),
    },
    read=lambda given, *scores: numbers(given, 2),
    alike=partial(close, within=0.01),
)


@exercise(
    "ex04_3",
    "where training ends and which weights come back, for four curves",
    "Go through the losses in order. Remember the best one, and count how many came since without beating it.",
    "With patience 2, one evaluation without improvement is forgiven, and the second one in a row stops.",
    "Return the place of the best loss *seen so far*: what would have come later is never known.",
)
def early_stopping(answer: object) -> None:
    """Judge a function that finds the evaluation whose weights early stopping brings back."""
    cases = [
        ([5.0, 4.0, 3.0, 2.0], 2, 3, "falls to the end"),
        ([5.0, 4.0, 4.2, 4.4, 4.6], 2, 1, "turns up"),
        ([5.0, 4.0, 4.2, 3.9, 4.5, 4.6, 4.7], 2, 3, "has one bump, which is forgiven"),
        ([5.0, 4.0, 4.2, 4.4, 3.0], 2, 1, "would have fallen again after training had stopped"),
    ]
    for losses, patience, right, story in cases:
        given = number(called(answer, list(losses), patience))
        if given == right:
            continue
        if given == losses.index(min(losses)):
            raise Wrong(f"for a curve that {story} your function has looked ahead: training had stopped before.")
        if given == len(losses) - 1:
            raise Wrong(f"for a curve that {story} your function returns the last place, not the best one.")
        if given in losses:
            raise Wrong("a place in the list is asked for, from 0 on, not the loss that stands there.")
        raise Wrong(f"for a curve that {story}, {losses}, your function returns {given:g}.")


QUIZ = Quiz(
    "quiz04",
    "After 20 epochs on 25 sentences the training loss is 0.1. What do you know about other text?",
    {
        "a": "The model now predicts all text better.",
        "b": "Nothing, until other text is scored.",
        "c": "The model is ruined for other text.",
    },
    {
        "a": "no: it has learned those sentences by heart. In this lesson the validation loss rose meanwhile.",
        "b": "yes: the training loss says something about the training text only.",
        "c": "it may be, and here it became worse. But this number does not show it, and the validation loss does.",
    },
    right="b",
)
