"""LoRA: chosen layers of a model are adapted, and the quiz on how the matrices start."""

from copy import deepcopy
from functools import partial

import torch
from torch import nn

from course.exercises import Quiz, Wrong, function_exercise, kind


class Adapted(nn.Module):
    """Stands for a `LoRALinear`."""

    def __init__(self, base):
        super().__init__()
        self.base, self.A = base, nn.Parameter(base.weight.new_zeros(2, base.in_features))


def _model():
    """Two blocks, and what is around them. Two names end alike, and `tokens` is no linear layer."""
    with torch.device("meta"):  # draws nothing, so the reader's random numbers stay
        blocks = [nn.ModuleDict({name: nn.Linear(3, 3) for name in ("v_proj", "kv_proj", "up")}) for _ in range(2)]
        return nn.ModuleDict({"tokens": nn.Embedding(5, 3), "layers": nn.ModuleList(blocks), "head": nn.Linear(3, 5)})


def _adapt(model, names, wrap, fits=lambda names, name: name in names, first=True, last=False, deep=True):
    """The exercise's answer; its options make the mistakes."""
    model = deepcopy(model).requires_grad_(not first)
    for parent in list(model.modules() if deep else [model]):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and fits(names, name):
                setattr(parent, name, wrap(child))
    return model.requires_grad_(False) if last else model


def _trained(given, *_):
    """The names of a model's parameters, and which are trained."""
    if not isinstance(given, nn.Module):
        raise Wrong(f"the model is asked for, and this is {kind(given)}.")
    return {name: parameter.requires_grad for name, parameter in given.named_parameters()}


adapt = function_exercise(
    "ex05_1",
    "which layers of a small model are wrapped, for two sets of names, and which parameters are trained",
    "The lesson's `inject` has all parts. Freeze first, and then walk over `list(model.modules())`.",
    "For each `name, child` in `list(parent.named_children())`: is `name in names`, and `child` an `nn.Linear`?",
    right=_adapt,
    cases=[(f"for {' and '.join(names)}", _model(), {*names}, Adapted) for names in (["v_proj", "tokens"], ["head"])],
    mistakes={
        "every linear layer is wrapped, whatever its name.": partial(_adapt, fits=lambda *_: True),
        "`kv_proj` is wrapped, too. Its name only ends like `v_proj`.": partial(
            _adapt, fits=lambda names, name: name.endswith(tuple(names))
        ),
        "layers within blocks are not wrapped. Walk over `model.modules()`.": partial(_adapt, deep=False),
        "the model is not frozen.": partial(_adapt, first=False),
        "the adapters are frozen, too. Freeze before you wrap.": partial(_adapt, last=True),
    },
    read=_trained,
    alike=lambda given, model: given == _trained(model),
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
