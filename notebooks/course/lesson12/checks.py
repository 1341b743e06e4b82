"""Anatomy of a training step: bytes by the value, the moment that needs most, and what is alive in it."""

from collections import Counter

from course.exercises import Quiz, Wrong, called, exercise, near, number, recognise

VALUES, TRAINED = 494_032_768, 29_865_088


@exercise(
    "ex12_1",
    1,
    "weights, gradients and AdamW's averages together, in GB, to one percent",
    "What does a frozen value need, and what does a trained one need on top of that?",
    "Every value takes 4 bytes. A trained one takes 4 more for its gradient and 8 more for AdamW.",
)
def bytes_of_a_strategy(answer: object) -> None:
    """Judge the bytes of weights, gradients and averages of a strategy, in GB."""
    right = (4 * VALUES + 12 * TRAINED) / 1e9
    if near(answer, right):
        return
    reasons = {
        16 * VALUES / 1e9: "that trains every value. A frozen one has no gradient and no averages.",
        16 * TRAINED / 1e9: "that leaves out the frozen weights: they are not trained, but they are there.",
        (4 * VALUES + 16 * TRAINED) / 1e9: "that counts the trained weights twice.",
        (4 * VALUES + 8 * TRAINED) / 1e9: "a part is missing: a trained value needs a gradient, and two averages.",
        (4 * VALUES + 4 * TRAINED) / 1e9: "a part is missing: AdamW keeps two averages of every gradient.",
        12 * TRAINED / 1e9: "that is what training adds; the weights themselves are asked for too.",
        4 * VALUES / 1e9: "that is the weights alone.",
        right * 1e9 / 2**30: "that is in GiB, of 2**30 bytes. A GB has a billion.",
        right * 1e9: "that is in bytes; GB are asked for.",
        right * 1e3: "that is in MB; GB are asked for.",
    }
    recognise(answer, reasons)
    raise Wrong(f"{float(answer):.4g} GB is not it.")


@exercise(
    "ex12_2",
    2,
    "the number of rows from which on the loss needs most, for four models and lengths",
    "Which of the parts grow with the rows? Which are there when the loss is computed?",
    "With n rows, the moment of the loss needs weights + optimizer state + n * (activations + logits and loss).",
    "Start at n = 1, and count up while that is not above one_row['at the end'].",
)
def turning_point(answer: object) -> None:
    """Judge a function for the number of rows from which on the loss needs most memory."""
    from tlkit.fitting.estimate import closed_form

    cases = (("qwen2-0.5b", 64), ("qwen2-0.5b", 512), ("tinyllama-1.1b", 128), ("tiny", 512))
    for model, tokens in cases:
        one_row = closed_form(model, batch_size=1, sequence_length=tokens)
        right, wrongs = _rows(one_row)
        given = number(called(answer, dict(one_row)))
        case = f"for {model} and rows of {tokens} tokens your function returns {given:.6g}"
        if given == right:
            continue
        if given in wrongs:
            raise Wrong(f"{case}: {wrongs[given]}")
        if given != int(given):
            raise Wrong(f"{case}: rows come whole. Which whole number is the first that will do?")
        raise Wrong(f"{case}.")


def _rows(one_row):
    """The first number of rows with which the loss needs more than the end; and those that mistakes lead to."""
    activations, logits, end = (one_row["activations"], one_row["logits and loss"], one_row["at the end"])
    lasting = one_row["weights"] + one_row["optimizer state"]
    one_set = lasting + one_row["gradients"]

    def first(constant, each_row, end=end):
        return max(1, (end - constant) // each_row + 1)

    right = first(lasting, activations + logits)
    wrongs = {
        right - 1: "with so many the end still needs more, and one more row is asked for.",
        right + 1: "one row fewer will do.",
        first(0, one_row["at the loss"]): "do weights and optimizer grow with the rows?",
        first(0, activations + logits): "are activations and logits all that is alive when the loss is computed?",
        first(lasting, activations): "activations are not all that grows with the rows.",
        first(lasting, logits): "logits are not all that grows with the rows.",
        first(lasting, activations + logits, one_set): "at the end, one set of gradients is not all that comes.",
        first(end, activations + logits): "are the gradients there already when the loss is computed?",
    }
    return right, wrongs


@exercise(
    "ex12_3",
    3,
    "what is alive when most is, for four logs",
    "Go through the log with a dictionary of what is alive now. Remember it whenever its sum is a new record.",
    "Remember a copy, dict(alive): the dictionary itself goes on changing.",
    "for name, size in log: alive[name] = alive.get(name, 0) + size; if sum(alive.values()) > record: remember both.",
)
def alive_at_the_peak(answer: object) -> None:
    """Judge a function that finds what is alive when a log of allocations is at its peak."""
    cases = {
        "one short row": "weights 4, averages 8, activations 2, activations -1, activations 1, logits 1, logits -1, "
        "gradients 2, activations -2, gradients 2, embedding gradient 2, embedding gradient -2, gradients -4",
        "many long rows": "weights 4, averages 8, activations 9, logits 7, logits 7, logits -14, gradients 3, "
        "activations -9, gradients 1, gradients -4",
        "two micro-batches": "weights 4, averages 8, activations 3, logits 2, logits -2, gradients 4, activations -3, "
        "activations 3, logits 2, logits -2, activations -3, gradients -4",
        "a model that was largest while it was loaded": "weights 20, weights -10, activations 3, activations -3",
    }
    for story, text in cases.items():
        log = [(name, int(size)) for name, size in (part.rsplit(" ", 1) for part in text.split(", "))]
        given = called(answer, list(log))
        peak, ever, end, parts = _replay(log)
        if not isinstance(given, dict):
            if given == sum(peak.values()):
                raise Wrong(f"for {story} the size of the peak is right; what is alive then is asked for, as a dict.")
            raise Wrong(f"for {story} a dict is asked for, and this is {type(given).__name__}.")
        given = {name: size for name, size in given.items() if size != 0}
        if given == peak:
            continue
        wrongs = [
            (parts, "these are the largest sizes of all parts, each at its own moment. They are not alive together."),
            (ever, "this adds up all that was ever made, and forgets that some of it is gone."),
            (end, "this is alive when the log ends. Did you keep the dictionary itself, which goes on changing?"),
            ({name: peak[name] for name in list(peak)[-1:]}, "only one of the parts that are alive is there."),
        ]
        for value, reason in wrongs:
            if given == value:
                raise Wrong(f"for {story} {reason}")
        if given.keys() != peak.keys():
            gone = [name for name in given if name not in peak] or [name for name in peak if name not in given]
            raise Wrong(f"for {story} look at {gone[0]!r}: is it alive at that moment?")
        raise Wrong(f"for {story} the right parts are there, and not all with the size that they have at that moment.")


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


QUIZ = Quiz(
    "quiz12",
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
        "it is another optimizer, and so another training. Lesson 13 finds a way to keep this one.",
    },
    right="d",
)
TASKS = (bytes_of_a_strategy, turning_point, alive_at_the_peak, QUIZ)
