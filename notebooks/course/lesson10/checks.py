"""Out of memory: a step with three faults, which are mended."""

import sys
import weakref

import torch
from torch.nn.functional import cross_entropy

from course.exercises import Quiz, Wrong, called, exercise, number


class _Bigrams(torch.nn.Module):
    """Logits by the token before, on a card with room for some rows; gradients that wait take as much as a row."""

    def __init__(self, room):
        super().__init__()
        self.logits = torch.nn.Embedding.from_pretrained(torch.eye(5), freeze=False)
        self.room, self.tried, self.watched, self.held = room, [], [], []

    def forward(self, rows):
        if any(tensor() is not None for tensor in self.watched):  # a full card has no room for a second try
            self.held.append("the `except` block had not ended" if sys.exception() else "a name held the exception")
        self.tried.append(len(rows))
        if len(self.tried) > 20:
            raise SystemExit  # which passes an `except Exception`
        if self.held or len(rows) + (self.logits.weight.grad is not None) > self.room:
            activations = torch.zeros(8)
            self.watched.append(weakref.ref(activations))  # sees the tensor without keeping it
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self.logits(rows)


@exercise(
    "ex10_1",
    "the weights after a step on five cards, what is held when a new try begins, and what is returned or raised",
    "Divide the *sum* of each micro-batch's losses by the labels that count in the whole batch.",
    "Put `try` into a loop. Where the `except` block has ended, halve `size` and drop the gradients of the failed try.",
)
def step_without_faults(answer: object) -> None:
    """Judge a step that halves its micro-batches until they fit."""
    inputs, labels = torch.arange(16).view(4, 4) % 5, torch.arange(16).view(4, 4) % 3
    labels[2, 1:] = labels[3, 2:] = -100
    whole = torch.eye(5, requires_grad=True)
    cross_entropy(whole[inputs].flatten(0, 1), labels.flatten()).backward()
    for size, room, fits in ((2, 3, 2), (4, 2, 1), (4, 3, 2), (3, 2, 1), (4, 0, 0)):
        story = f"for {size} of 4 rows at once on a card with room for {room or 'none'}"
        model, given, stopped = _Bigrams(room), None, None
        optimizer = torch.optim.SGD(model.parameters(), lr=1)
        try:
            given = called(answer, model, optimizer, inputs.clone(), labels.clone(), size)
        except SystemExit:
            raise Wrong(f"{story} your function never ends: it tries {model.tried[:5]} and so on.") from None
        except Wrong as wrong:
            stopped = wrong
        if model.held:
            raise Wrong(f"{story} the tensors of a failed try were there when the next one began: {model.held[0]}.")
        if not fits and model.tried and not isinstance(getattr(stopped, "__cause__", 0), torch.OutOfMemoryError):
            raise Wrong(f"{story} the error has to come through. Did an `except` keep it?")
        if fits and stopped:
            raise stopped
        if fits and number(given) != fits:
            raise Wrong(f"{story} you return {given!r:.20}, and {fits} at once fitted.")
        if fits and not torch.allclose(model.logits.weight, whole - whole.grad, atol=1e-5):
            why = "do gradients of a failed try count?" if size > fits else "does each token count the same?"
            raise Wrong(f"{story} the weights are not those of a step with the whole batch: {why}")


QUIZ = Quiz(
    "quiz10",
    "Of 23.65 GiB, 1.10 GiB is free, and a tensor of 2 GiB is refused. This process has 9.40 GiB in use, 9.20 of them "
    "allocated by PyTorch. What do you do first?",
    {
        "a": "Look with `nvidia-smi` who holds the rest.",
        "b": "Set `expandable_segments:True`.",
        "c": "Halve the micro-batch.",
    },
    {
        "a": "yes: 13 GiB belong to another process, such as a notebook that is still open. End it, and there is room.",
        "b": "no: that is the cure of fragments, and here at most 0.2 GiB are reserved without being allocated.",
        "c": "no: it may help, but costs time, and 13 GiB stay with another process.",
    },
    right="a",
)
