"""Out of memory: the same gradients in pieces."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from course.exercises import Quiz, Wrong, called, exercise, near, number


@exercise(
    "ex10_1",
    "the gradients, the loss, and how many rows passed at once, for five batches",
    "backward() adds to the gradients that are there. So what the pieces add must be shares of the batch's loss.",
    "The sum of the losses in a piece, divided by the targets that count in the *whole* batch, is the piece's share.",
    "cross_entropy(..., reduction='sum') leaves out the targets of -100; (targets != -100).sum() counts the others.",
)
def same_gradients_in_pieces(answer: object) -> None:
    """Judge a function that leaves a whole batch's gradients, computed in micro-batches."""
    draw = torch.Generator().manual_seed(0)
    even = torch.randint(11, (4, 6), generator=draw)
    uneven, shorter, hollow = (even.clone(), torch.cat([even, even[:1]]), even[:3].clone())
    uneven[0, 1:] = uneven[1, 2:] = shorter[0, 3:] = hollow[1] = -100
    cases = [
        (even, 2, "pieces of the same size"),
        (uneven, 2, "pieces in which not all targets count"),
        (shorter, 2, "a last piece that is shorter"),
        (hollow, 1, "a piece in which no target counts"),
        (even, 8, "a batch smaller than a piece"),
    ]
    for targets, rows, story in cases:
        _in_pieces(answer, targets, rows, story, draw)


def _in_pieces(answer, targets, rows, story, draw):
    with torch.random.fork_rng(devices=[]):  # a check leaves the notebook's random numbers alone
        model, passed = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 11)), []
    parameters = list(model.parameters())
    for parameter in parameters:
        parameter.data = torch.randn(parameter.shape, generator=draw)
    before = [parameter.detach().clone() for parameter in parameters]
    inputs = torch.randint(11, targets.shape, generator=draw)
    hook = model.register_forward_pre_hook(lambda _, handed: passed.append(len(handed[0])))
    given = called(answer, model, inputs.clone(), targets.clone(), rows)
    hook.remove()

    if not all(torch.equal(one, other) for one, other in zip(before, parameters, strict=True)):
        raise Wrong(f"for {story} the weights have changed; only their gradients are asked for.")
    if max(passed, default=0) > rows:
        raise Wrong(f"for {story} {max(passed)} rows went through the model at once; {rows} at a time were allowed.")
    if any(parameter.grad is None for parameter in parameters):
        raise Wrong(f"for {story} weights are left without a gradient. Was backward() called, and nothing dropped?")
    gradients = parameters_to_vector([parameter.grad for parameter in parameters])
    if gradients.isnan().any():
        raise Wrong(f"for {story} there is nan among the gradients. What is the mean of no losses?")
    if not gradients.any():
        raise Wrong(f"for {story} all gradients are zero. Were they dropped at the end?")
    (right, *wrongs), reasons = _ways(model, inputs, targets, rows)
    if not _same(gradients, _gradients(right, parameters)):
        for wrong, reason in zip(wrongs, reasons, strict=True):
            if _same(gradients, _gradients(wrong, parameters)):
                raise Wrong(f"for {story} the gradients are not those of the whole batch: {reason}")
        raise Wrong(f"for {story} the gradients are not those of the whole batch.")
    if str(given) == "nan" or isinstance(given, torch.Tensor) and given.isnan().any():
        raise Wrong(f"for {story} the gradients are right; the loss is nan. What is the mean of no losses?")
    loss = number(given.detach() if isinstance(given, torch.Tensor) else given)
    if not near(loss, right.item(), within=1e-4):
        for wrong, reason in zip(wrongs, reasons, strict=True):
            if near(loss, wrong.item(), within=1e-4):
                raise Wrong(f"for {story} the gradients are right, and the loss that you return is not: {reason}")
        raise Wrong(f"for {story} the gradients are right; the loss that you return, {loss:.4g}, is not the batch's.")


def _ways(model, inputs, targets, rows):
    """The loss of the batch, then what usual mistakes make of it; and what is told of those."""
    places = [slice(start, start + rows) for start in range(0, len(targets), rows)]
    sums = [cross_entropy(model(inputs[p]).flatten(0, 1), targets[p].flatten(), reduction="sum") for p in places]
    counts = [int((targets[place] != -100).sum()) for place in places]
    means = [part / max(count, 1) for part, count in zip(sums, counts, strict=True)]
    whole, counted, mean = sum(sums), sum(counts), sum(means) / len(means)
    ways = {
        "": whole / counted,
        "each piece is divided by its own number, and all weigh the same, however little counts in one.": mean,
        "the means of the pieces are added up, and divided by nothing.": sum(means),
        "the sums are divided by nothing.": whole,
        "this is the last piece alone. Were the gradients of the others dropped?": means[-1],
        "this is the last piece's share alone. Where are the others?": sums[-1] / counted,
        "it is divided by all targets, also by those of -100.": whole / targets.numel(),
        "it is divided by the rows, not by the targets that count.": whole / len(targets),
        "it is divided twice: by the targets that count, and by the pieces.": whole / counted / len(places),
    }
    return list(ways.values()), [reason for reason in ways if reason]


def _gradients(loss, parameters):
    return parameters_to_vector(torch.autograd.grad(loss, parameters, retain_graph=True))


def _same(one, other):
    return bool((one - other).norm() <= 1e-4 * other.norm())


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
