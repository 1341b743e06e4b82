"""LoRA: how to see that an adapter learns."""

from functools import partial

import torch

from course.exercises import Quiz, Wrong, function_exercise, kind


def _dead(first, second, alive=lambda gradient: gradient is not None and bool(gradient.any())):
    return sorted(name for name in first if not alive(first[name]) and not alive(second[name]))


def _steps():
    """Gradients of two steps, as they are in healthy adapters and in broken ones."""
    none, zero = None, torch.zeros(2, 3)
    some = torch.tensor([[0.5, 0.25, 0.0], [0.0, 0.25, -0.25]])
    level = torch.tensor([[0.5, -0.5, 0.0], [0.0, 0.25, -0.25]])  # not zero, though their sum is
    healthy = {"q.A": (zero, some), "q.B": (some, some)}
    for story, broken in (
        ("for a healthy adapter", {}),
        ("for an adapter that was never used", {"v.A": (none, none), "v.B": (none, none)}),
        ("for an adapter with zeros in A and in B", {"v.A": (zero, zero), "v.B": (zero, zero)}),
        ("for a B that was reached in the first step only", {"v.A": (zero, level), "v.B": (level, zero)}),
        ("for an adapter that lost its gradient", {"v.A": (none, zero), "v.B": (zero, none)}),
    ):
        steps = healthy | broken
        yield story, *({name: steps[name][step] for name in steps} for step in (0, 1))


def _names(given, *steps):
    if isinstance(given, str | dict) or not hasattr(given, "__iter__"):
        raise Wrong(f"a list of names is asked for, and this is {kind(given)}.")
    given = list(given)
    if not set(given) <= set(steps[0]):
        raise Wrong("there is something in the list that is no name.")
    return sorted(given)


dead_adapters = function_exercise(
    "ex05_1",
    "the list of names for a healthy adapter, and for four that are broken or look so",
    "A healthy A has no gradient in one of the two steps. In which?",
    "A gradient may be None or a tensor of zeros. `gradient.any()` says whether one of its entries is not zero.",
    "Write `alive(gradient)` first: `gradient is not None and bool(gradient.any())`. A name is dead if neither of its "
    "two gradients is alive.",
    right=_dead,
    cases=_steps,
    mistakes={
        "a healthy A is in the list. While B is still zero, A waits for the second step.": lambda first, second: _dead(
            first, first
        ),
        "a tensor is in the list that did receive a gradient in the first step.": lambda first, second: _dead(
            second, second
        ),
        "a tensor without any gradient is not in the list: it is None, and not zeros.": partial(
            _dead, alive=lambda gradient: gradient is None or bool(gradient.any())
        ),
        "a tensor whose gradient is zero in both steps is not in the list.": partial(
            _dead, alive=lambda gradient: gradient is not None
        ),
        "the sum of a gradient may be zero although its entries are not.": partial(
            _dead, alive=lambda gradient: gradient is not None and bool(gradient.sum() != 0)
        ),
        "these are the names that do receive a gradient.": lambda first, second: sorted(
            set(first) - set(_dead(first, second))
        ),
    },
    read=_names,
    alike=lambda given, expected: given == expected,
)


QUIZ = Quiz(
    "quiz05",
    "A friend initialises A *and* B with zeros, to be sure that the adapted model starts as the pretrained one. "
    "What happens in training?",
    {
        "a": "Nothing moves: every gradient of A and B is zero, in every step.",
        "b": "It trains as usual, because the product B·A is zero at the start either way.",
        "c": "A waits for one step and then trains, as it always does.",
        "d": "B waits for one step and then trains.",
    },
    {
        "a": "yes: the gradient of A contains B, and the gradient of B contains A. Both are zero and stay zero.",
        "b": "no: the model starts the same, but the gradients do not. The gradient of B contains A, which is zero.",
        "c": "no: A waits for B to move. Here B cannot move, because its gradient contains A.",
        "d": "no: B could only move after A did, and A waits for B.",
    },
    right="a",
)
