"""Memory of a training step: the bytes that last, and what is alive at the moment that needs most."""

from collections import Counter
from operator import eq

import torch

from course.exercises import Quiz, Wrong, function_exercise, kind, number
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


def _read_log(given, log):
    if not isinstance(given, dict):
        raise Wrong(f"a dict is asked for, of what is alive at the peak, and this is {kind(given)}.")
    return {name: size for name, size in given.items() if size != 0}


def _replay(log):
    """What is alive at the peak, what was ever made, what is alive at the end, and each part at its own largest."""
    alive, ever, parts, peak = Counter(), Counter(), Counter(), {}
    for name, size in log:
        alive[name] += size
        ever[name] += max(size, 0)
        parts[name] = max(parts[name], alive[name])
        if sum(alive.values()) > sum(peak.values()):
            peak = dict(+alive)
    return peak, dict(ever), dict(+alive), dict(parts)


def _last_sizes(log):
    """At the largest sum of what each part was last changed by."""
    alive, best = {}, {}
    for name, size in log:
        alive[name] = size
        best = dict(alive) if sum(alive.values()) > sum(best.values()) else best
    return best


LOGS = {
    "one short row": "weights 4, averages 8, activations 2, activations -1, activations 1, logits 1, logits -1, "
    "gradients 2, activations -2, gradients 2, embedding gradient 2, embedding gradient -2, gradients -4",
    "many long rows": "weights 4, averages 8, activations 9, logits 7, logits 7, logits -14, gradients 3, "
    "activations -9, gradients 1, gradients -4",
    "two micro-batches": "weights 4, averages 8, activations 3, logits 2, logits -2, gradients 4, activations -3, "
    "activations 3, logits 2, logits -2, activations -3, gradients -4",
    "a model that was largest while it was loaded": "weights 20, weights -10, activations 3, activations -3",
}


def _parsed(text):
    return [(name, int(size)) for name, size in (part.rsplit(" ", 1) for part in text.split(", "))]


alive_at_the_peak = function_exercise(
    "ex09_2",
    "what is alive when most is, for four logs",
    "Go through the log with a dictionary of what is alive now. Remember it whenever its sum is a new record.",
    "Remember a copy, dict(alive): the dictionary itself goes on changing.",
    "for name, size in log: alive[name] = alive.get(name, 0) + size; if sum(alive.values()) > record: remember both.",
    right=lambda log: _replay(log)[0],
    cases=[(f"for {story}", _parsed(text)) for story, text in LOGS.items()],
    mistakes={
        "this adds up all that was ever made, and forgets that some of it is gone.": lambda log: _replay(log)[1],
        "this is alive when the log ends. Did you keep the dictionary itself, which goes on changing?": lambda log: (
            _replay(log)[2]
        ),
        "these are the largest sizes of all parts, each at its own moment. They are not alive together.": lambda log: (
            _replay(log)[3]
        ),
        "only one of the parts that are alive is there.": lambda log: dict(list(_replay(log)[0].items())[-1:]),
        "a part that changes keeps what it had: add each size to it.": _last_sizes,
    },
    read=_read_log,
    alike=eq,
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
