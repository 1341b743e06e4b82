"""Anatomy of a training step: bytes by the value, the moment that needs most, and what is alive in it."""

from collections import Counter
from functools import partial
from operator import eq

from course.exercises import Quiz, Wrong, function_exercise, kind, number_exercise
from tlkit.fitting.estimate import closed_form

VALUES, TRAINED = 494_032_768, 29_865_088
GIGABYTES = (4 * VALUES + 12 * TRAINED) / 1e9
bytes_of_a_strategy = number_exercise(
    "ex09_1",
    "weights, gradients and AdamW's averages together, in GB, to one percent",
    "What does a frozen value need, and what does a trained one need on top of that?",
    "Every value takes 4 bytes. A trained one takes 4 more for its gradient and 8 more for AdamW.",
    right=GIGABYTES,
    mistakes={
        "that trains every value. A frozen one has no gradient and no averages.": 16 * VALUES / 1e9,
        "that leaves out the frozen weights: they are not trained, but they are there.": 16 * TRAINED / 1e9,
        "that counts the trained weights twice.": (4 * VALUES + 16 * TRAINED) / 1e9,
        "a part is missing: a trained value needs a gradient, and two averages.": (4 * VALUES + 8 * TRAINED) / 1e9,
        "a part is missing: AdamW keeps two averages of every gradient.": (4 * VALUES + 4 * TRAINED) / 1e9,
        "that is what training adds; the weights themselves are asked for too.": 12 * TRAINED / 1e9,
        "that is the weights alone.": 4 * VALUES / 1e9,
        "that is in GiB, of 2**30 bytes. A GB has a billion.": GIGABYTES * 1e9 / 2**30,
        "that is in bytes; GB are asked for.": GIGABYTES * 1e9,
        "that is in MB; GB are asked for.": GIGABYTES * 1e3,
    },
)


def _steps():
    for model, tokens in (("qwen2-0.5b", 64), ("qwen2-0.5b", 512), ("tinyllama-1.1b", 128), ("tiny", 512)):
        yield f"for {model} and rows of {tokens} tokens", closed_form(model, batch_size=1, sequence_length=tokens)


def _first(one_row, constant=("weights", "optimizer state"), each=("activations", "logits and loss"), end="at the end"):
    """The first number of rows with which a moment needs more than another; the options make it another moment."""
    end, constant, each = (
        sum(one_row[name] for name in ((names,) if isinstance(names, str) else names))
        for names in (end, constant, each)
    )
    return max(1, (end - constant) // each + 1)


turning_point = function_exercise(
    "ex09_2",
    "the number of rows from which on the loss needs most, for four models and lengths",
    "Which of the parts grow with the rows? Which are there when the loss is computed?",
    "With n rows, the moment of the loss needs weights + optimizer state + n * (activations + logits and loss).",
    "Start at n = 1, and count up while that is not above one_row['at the end'].",
    right=_first,
    cases=_steps,
    mistakes={
        "with so many the end still needs more, and one more row is asked for.": lambda one_row: _first(one_row) - 1,
        "one row fewer will do.": lambda one_row: _first(one_row) + 1,
        "do weights and optimizer grow with the rows?": partial(_first, constant=(), each="at the loss"),
        "are activations and logits all that is alive when the loss is computed?": partial(_first, constant=()),
        "activations are not all that grows with the rows.": partial(_first, each="activations"),
        "logits are not all that grows with the rows.": partial(_first, each="logits and loss"),
        "at the end, one set of gradients is not all that comes.": partial(
            _first, end=("weights", "optimizer state", "gradients")
        ),
        "are the gradients there already when the loss is computed?": partial(_first, constant="at the end"),
        "rows come whole. Which whole number is the first that will do?": lambda one_row: _first(one_row) - 0.5,
    },
    alike=eq,
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
    "ex09_3",
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
        "b": "the chunked loss",
        "c": "rows of 256 tokens",
        "d": "plain SGD instead of AdamW",
    },
    {
        "a": "no: the peak is at the end of the backward pass, when the activations are gone. The table above has 0%.",
        "b": "no: the logits are gone too when the backward pass ends. With eight rows it would help.",
        "c": "no: it halves activations and logits, gone at the peak. The rest does not depend on the tokens.",
        "d": "yes: AdamW's averages are alive all the time, 8 bytes a value. Without them the step needs 4.70 GiB. But "
        "it is another optimizer, and so another training. Lesson 10 finds a way to keep this one.",
    },
    right="d",
)
