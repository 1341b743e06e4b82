"""Memory of a training step: the bytes that a model needs however small the batch is."""

import torch

from course.exercises import Quiz, function_exercise, number
from course.small import small_model


def _models():
    half = small_model(depth=4)
    half.requires_grad_(False).model.layers[2:].requires_grad_(True)
    yield "for a model of which half is frozen", half
    yield "for a model of which all is trained", small_model()
    mixed = small_model(tied=False).to(torch.bfloat16).requires_grad_(False)
    mixed.model.layers[1].float().requires_grad_(True)
    yield "for frozen weights in bf16 and a trained block in fp32", mixed


def _bytes(frozen: float = 1, trained: float = 4, size=lambda p: p.nbytes):
    return lambda model: sum(size(p) * (trained if p.requires_grad else frozen) for p in model.parameters())


lasting_bytes = function_exercise(
    "ex09_1",
    "the bytes of weights, gradients and AdamW's moments of three models",
    "Go through `model.parameters()`. Which of them need a gradient, and which only have to be there?",
    "`p.nbytes` knows the number of parameters and their dtype; `p.requires_grad` says whether they are trained.",
    "A frozen parameter takes its own bytes. A trained one takes four times as many: gradient, and two moments.",
    right=_bytes(),
    cases=_models,
    mistakes={
        "frozen parameters are counted as if they were trained: they have no gradient and no moments.": _bytes(4),
        "the frozen weights are left out. They are not trained, but they are there.": _bytes(0),
        "a part is missing: a trained parameter has a gradient, and two moments of it.": _bytes(trained=3),
        "two parts are missing: a trained parameter has a gradient, and two moments of it.": _bytes(trained=2),
        "that is the weights alone.": _bytes(trained=1),
        "that is what training adds; the weights are asked for, too.": _bytes(0, 3),
        "every parameter is taken for fp32. `p.nbytes` knows its dtype.": _bytes(size=lambda p: 4 * p.numel()),
        "these are numbers; bytes are asked for.": _bytes(size=torch.numel),
    },
    alike=lambda given, expected: number(given) == expected,
)


QUIZ = Quiz(
    "quiz09",
    "Full fine-tuning of `qwen2-0.5b`, one row of 512 tokens, needs 8.38 GiB. Which change lowers the peak?",
    {
        "a": "activation checkpointing",
        "b": "logits and loss for 64 tokens at a time",
        "c": "rows of 256 tokens",
        "d": "plain SGD instead of AdamW",
    },
    {
        "a": "no: the peak is at the end of the backward pass, when the activations are gone already.",
        "b": "no: the logits are gone too when the backward pass ends. With eight rows it would help.",
        "c": "no: it halves activations and logits, gone at the peak. The rest does not depend on the tokens.",
        "d": "yes: AdamW's moments are alive all the time, 8 bytes a parameter. Without them the step needs 4.70 GiB. "
        "But it is another optimizer, and so another training. Lesson 10 finds a way to keep this one.",
    },
    right="d",
)
