"""The PEFT family: what is trained, by kind of parameter, and how much of a step's arithmetic a method saves."""

import re
from functools import partial

import torch
from torch import nn

from course.exercises import Quiz, function_exercise


def _kinds(model, number=r"\b\d+\b", every=False, size=nn.Parameter.numel, add=True):
    """The exercise's answer; its options make the mistakes."""
    counts = {}
    for name, parameter in model.named_parameters():
        if every or parameter.requires_grad:
            name = re.sub(number, "*", name)
            counts[name] = add * counts.get(name, 0) + size(parameter)
    return counts


def _model(trained):
    """Two blocks of two layers; what is trained has `trained` in its name."""
    with torch.device("meta"):  # draws nothing, so the reader's random numbers stay
        blocks = [nn.ModuleDict({"q_proj": nn.Linear(4, 3), "ia3": nn.Linear(3, 2, bias=False)}) for _ in range(2)]
        model = nn.ModuleDict({"layers": nn.ModuleList(blocks), "norm": nn.LayerNorm(2)})
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(trained in name)
    return model


kinds = function_exercise(
    "ex08_1",
    "what is trained in three small models: biases, a layer, or everything",
    "`model.named_parameters()` gives names and parameters. Go through those with `requires_grad`.",
    '`name.split(".")` cuts a name into parts, and `part.isdigit()` says which are numbers. Add up `numel()` by kind.',
    right=_kinds,
    cases=[(f"for {story}", _model(part)) for story, part in (("biases", "bias"), ("a layer", "ia3"), ("all", ""))],
    mistakes={
        "frozen parameters are counted, too.": partial(_kinds, every=True),
        "blocks are told apart. Write `*` for the number of each.": partial(_kinds, number="$^"),
        "a digit within a part, as in `ia3`, belongs to the name.": partial(_kinds, number=r"\d+"),
        "these are numbers of tensors. A tensor has `numel()` parameters.": partial(_kinds, size=lambda p: 1),
        "these are the parameters of one block. Add up those of all.": partial(_kinds, add=False),
    },
    read=lambda given, model: given,
    alike=lambda given, right: isinstance(given, dict) and given == right,
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
