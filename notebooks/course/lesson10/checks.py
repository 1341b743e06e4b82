"""Out of memory: the rows that fit, tried after the failed ones are gone."""

import sys
import weakref

import torch

from course.exercises import Quiz, Wrong, called, exercise, number


@exercise(
    "ex10_1",
    "which rows are tried on five cards, what is still held then, and what is returned or raised",
    "Put `step(rows)` into a `try` within a loop. What does Python hold while it is in the `except` block?",
    "In the block, decide only whether to give up. Halve and try again where the block has ended.",
    "`raise` alone, in the `except` block, lets the error through. It is right for `rows == 1` only.",
)
def rows_after_failed_ones(answer: object) -> None:
    """Judge a function that halves the rows of a step until they fit."""
    for rows, fit in ((8, 8), (8, 4), (7, 1), (12, 4), (6, 0)):
        _on_card(answer, rows, fit)


def _on_card(answer, rows, fit):
    story = f"for {rows} rows on a card with room for {fit or 'none'}"
    tried, watched, held = [], [], []

    def step(rows):
        if any(tensor() is not None for tensor in watched):  # a full card has no room for a second step
            held.append("the `except` block had not ended" if sys.exception() else "a name held the exception")
        activations = torch.zeros(8)
        watched.append(weakref.ref(activations))  # sees the tensor without keeping it
        tried.append(rows)
        if len(tried) > 20:
            raise SystemExit  # which passes an `except Exception`
        if held or rows > fit:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    given = stopped = None
    try:
        given = called(answer, step, rows)
    except SystemExit:
        stopped = Wrong(f"{story} your function never ends: it tries {tried[:5]} and so on.")
    except Wrong as wrong:
        stopped = wrong
    if held:
        raise Wrong(f"{story} the tensors of a failed try were there when the next one began: {held[0]}.")
    through = stopped and isinstance(stopped.__cause__, torch.OutOfMemoryError)
    if stopped and not through and (fit or not tried):
        raise stopped
    halves = [rows >> times for times in range(rows.bit_length())]
    right = [few for few in halves if few > fit] + [few for few in halves if few <= fit][:1]
    if tried != right:
        raise Wrong(f"{story} the tries are {tried}, and should be {right}.")
    if not fit and not through:
        raise Wrong(f"{story} the error has to come through. Did an `except` keep it?")
    if fit and (through or number(given) != right[-1]):
        raise Wrong(f"{story} you return {given!r:.20}, and the first number that fits is {right[-1]}.")


QUIZ = Quiz(
    "quiz10",
    "In step 1, memory runs out in the *optimizer step*. Which change can help and still give the same weights?",
    {
        "a": "Move the optimizer to the host.",
        "b": "Use a smaller micro-batch, because the tensor that was refused is small.",
        "c": "Switch activation checkpointing on.",
        "d": "Take half as many rows in a step.",
    },
    {
        "a": "yes: at that moment AdamW makes its two moments, 8 bytes for each trained parameter. On the host they "
        "need no memory of the card, and the update is the same.",
        "b": "no: the activations of all micro-batches are gone by then. And a small tensor is only the part of "
        "AdamW's moments that came next; more parts were still to come.",
        "c": "no: it saves activations, and they are already gone when the optimizer takes its step.",
        "d": "no, for two reasons: the activations of those rows are gone by then, and a step with fewer rows has "
        "other gradients, so it would give other weights.",
    },
    right="a",
)
