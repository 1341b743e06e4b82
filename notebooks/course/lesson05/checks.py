"""LoRA: adapted layers are merged, and how the matrices start."""

from copy import deepcopy
from functools import partial

import torch
from torch import nn

from course.exercises import Quiz, function_exercise


class Adapted(nn.Module):
    """Stands for a `LoRALinear`."""

    def __init__(self, base, scaling):
        super().__init__()
        self.base, self.scaling = base, scaling
        self.A, self.B = (nn.Parameter(torch.empty(size)) for size in ((2, base.in_features), (base.out_features, 2)))


def _model(dtype):
    """Two blocks; the adapted layer of the second has a bias."""
    with torch.device("meta"):  # draws nothing, so the reader's random numbers stay
        adapted = [Adapted(nn.Linear(3, 4, bias=n > 2, dtype=dtype), n) for n in (2, 4)]
        model = nn.ModuleList(nn.ModuleDict({"up": one, "down": nn.Linear(4, 3)}) for one in adapted)
    for number, tensor in enumerate(model.to_empty(device="cpu").parameters()):
        tensor.data.copy_(torch.arange(number, number + tensor.numel()).cos().view_as(tensor))
    return model


def _merge(model, kind, deep=True, scale=lambda child: child.scaling, bias=True, dtype=None):
    """The exercise's answer; its options make the mistakes."""
    model = deepcopy(model)
    for parent in list(model.modules() if deep else [model]):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                child.base.weight.data += scale(child) * (child.B @ child.A).data
                child.base.bias = child.base.bias if bias else None
                setattr(parent, name, child.base.to(dtype))
    return model


def _alike(given, model):
    if not isinstance(given, nn.Module):
        return False
    found, wanted = ({(name, x.dtype): x for name, x in one.state_dict().items()} for one in (given, model))
    return found.keys() == wanted.keys() and all(torch.allclose(found[n], x, atol=0.1) for n, x in wanted.items())


merge = function_exercise(
    "ex05_1",
    "the weights and biases of two small models after merging, one of them in bf16",
    "Walk over `list(model.modules())` and `list(parent.named_children())` as `inject` does, and look for `kind`.",
    "Under `torch.no_grad()` add to `child.base.weight` as in the lesson, and put `child.base` in place of `child`.",
    right=_merge,
    cases=[(f"for a model in {name}", _model(getattr(torch, name)), Adapted) for name in ("float32", "bfloat16")],
    mistakes={
        "the layers are as they were. Walk over `model.modules()`.": partial(_merge, deep=False),
        "the adapter is not added to the weights.": partial(_merge, scale=lambda _: 0),
        "the change lacks alpha / r, which is `scaling`.": partial(_merge, scale=lambda _: 1),
        "a layer has lost its bias.": partial(_merge, bias=False),
        "the merged weights have lost the data type of `base`.": partial(_merge, dtype=torch.float32),
    },
    read=lambda given, *_: given,
    alike=_alike,
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
