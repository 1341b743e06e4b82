"""Unfreezing schedules: the slanted triangle."""

import math
from functools import partial

from course.exercises import Quiz, function_exercise, near


def _slanted(step, steps, cut_frac=0.1, ratio=32):
    cut = math.floor(steps * cut_frac)
    p = step / cut if step < cut else 1 - (step - cut) / (cut * (1 / cut_frac - 1))
    return (1 + p * (ratio - 1)) / ratio


slanted = function_exercise(
    "exA1_1",
    "the factor of the learning rate in six steps of two runs",
    "There are two straight lines: up over the first `cut` steps, then down over all others.",
    "The formulas for p are given. Which of them holds where `step` is equal to `cut`? Both give 1 there.",
    "Return (1 + p * (ratio - 1)) / ratio, so that the factor never falls to zero.",
    right=_slanted,
    cases=[
        (f"for step {step} of {steps}", step, steps, share, ratio)
        for step, steps, share, ratio in (
            (0, 100, 0.1, 32),
            (5, 100, 0.1, 32),
            (10, 100, 0.1, 32),
            (55, 100, 0.1, 32),
            (99, 100, 0.1, 32),
            (150, 200, 0.25, 10),
        )
    ],  # fmt: skip
    mistakes={
        "that is p; the factor goes from 1/ratio to 1, so p has to be put into the second formula.": (
            lambda step, steps, share, ratio: _slanted(step, steps, share, 1e12)
        ),
        "it has to rise first: for a step before the cut, p is step / cut.": lambda step, steps, share, ratio: (
            (1 + (1 - step / steps) * (ratio - 1)) / ratio
        ),
        "it has to fall after the cut, to 1/ratio at the end.": lambda step, steps, share, ratio: (
            (1 + min(1, step / (steps * share)) * (ratio - 1)) / ratio
        ),
    },
    alike=partial(near, within=1e-4),
)


QUIZ = Quiz(
    "quizA1",
    "You unfreeze a block after 100 steps by setting `requires_grad` to true, but its weights never change. The losses "
    "and gradients look normal. What is the most likely reason?",
    {
        "a": "The warm-up of the learning rate is over by then.",
        "b": "The optimizer was made before, from the parameters that were trainable at that time.",
        "c": "A block that was frozen once is left out of the backward pass for good.",
        "d": "AdamW's averages of this block are still zero, so its first steps are zero, too.",
    },
    {
        "a": "no: after the warm-up the rate is at its highest.",
        "b": "yes: gradients arrive, but no optimizer holds these weights, so nothing ever uses them.",
        "c": "no: autograd asks for `requires_grad` anew in every forward pass.",
        "d": "no: AdamW corrects its averages for having begun at zero, so its first step is as long as any other.",
    },
    right="b",
)
