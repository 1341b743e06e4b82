"""LoRA: a layer is merged, and the quiz on how its matrices start."""

from copy import deepcopy

import torch
from torch import nn

from course.exercises import Quiz, Wrong, called, compare, exercise, kind
from course.small import close_tensors, tensor


def _layers():
    """LoRA layers like the lesson's, after training."""
    with torch.random.fork_rng(devices=[]):  # the reader's random numbers stay
        torch.manual_seed(0)
        for story, outputs, inputs, bias in (("without a bias", 6, 6, False), ("with a bias", 4, 6, True)):
            layer = nn.Module()
            layer.base, layer.scaling = nn.Linear(inputs, outputs, bias=bias), 1.5
            layer.A, layer.B = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))
            yield f"for a layer {story}, ", layer


def _merged(weight=lambda base, change, scaling: base + scaling * change, bias=True, copied=True):
    """The merged layer, or what a mistake makes of it."""

    def merge(layer):
        made = deepcopy(layer.base) if copied else layer.base
        made.weight.data = weight(made.weight, layer.B @ layer.A, layer.scaling).detach()
        made.bias = made.bias if bias else None
        return made

    return merge


_BIAS = "the weights are right, but the bias is not that of `base`."
_CHANGED = "the result is right, but `layer` has changed. Merge into a copy of its `base`."
_WEIGHTS = {
    "B @ A is added without the factor `scaling`.": _merged(lambda base, change, scaling: base + change),
    "the transpose of B @ A is added.": _merged(
        lambda base, change, scaling: base + scaling * change.T.reshape_as(base)
    ),
    "these are the weights of `base`; the adapter is missing.": _merged(lambda base, *_: base),
    "this is the change alone; the weights of `base` are missing.": _merged(
        lambda base, change, scaling: scaling * change
    ),
}


@exercise(
    "ex05_1",
    "a square layer without a bias and another one with a bias",
    "The formula of the lesson merges the weights. The layer has A, B and `scaling`, which is alpha / r.",
    "`deepcopy(layer.base)` is an `nn.Linear` with the right shape, dtype, device and bias. Only its weights change.",
    "Add `layer.scaling * (layer.B @ layer.A).detach()` to `weight.data` of the copy, and return the copy.",
    mistakes=_WEIGHTS | {_BIAS: _merged(bias=False), _CHANGED: _merged(copied=False)},
)
def merge(answer):
    for story, layer in list(_layers()):
        handed = deepcopy(layer)
        given, right = called(answer, handed), _merged()(layer)
        if not isinstance(given, nn.Linear):
            raise Wrong(f"{story}an nn.Linear is asked for, and this is {kind(given)}.")
        wrong = ((why, mistake(layer).weight) for why, mistake in _WEIGHTS.items())
        compare(tensor(given.weight, right.weight), right.weight, wrong, close_tensors, story)
        biases = [torch.zeros(len(one.weight)) if one.bias is None else one.bias for one in (given, right)]
        if not close_tensors(tensor(*biases), biases[1]):
            raise Wrong(story + _BIAS)
        if not all(torch.equal(*pair) for pair in zip(handed.parameters(), layer.parameters(), strict=True)):
            raise Wrong(story + _CHANGED)


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
