"""Inside a language model: the loss of texts of which some tokens do not count."""

from functools import partial

import torch
from torch.nn import functional as F

from course.exercises import Quiz, function_exercise


def _loss(logits, labels, *, shift: int = 1, counted: str = "those that count"):
    """The loss of the tokens that count; the options make it wrong, each as somebody does."""
    tokens = labels.shape[1]
    read, told = (logits[:, : tokens - shift], labels[:, shift:]) if shift >= 0 else (logits[:, 1:], labels[:, :-1])
    of_each = F.cross_entropy(read.mT, told if counted != "token 0" else told.clamp(min=0), reduction="none")
    ways = {
        "those that count": lambda: of_each.sum() / (told != -100).sum(),
        "all": lambda: of_each.mean(),
        "token 0": lambda: of_each.mean(),
        "none": lambda: of_each.sum(),
        "text by text": lambda: (of_each.sum(1) / (told != -100).sum(1)).mean(),
    }
    return float(ways[counted]())


def _texts():
    draw = torch.Generator().manual_seed(0)
    for ignored in (((1, slice(3, None)),), ((0, slice(0, 2)), (1, slice(5, None))), ()):
        logits, labels = 2 * torch.randn(2, 6, 7, generator=draw), torch.randint(7, (2, 6), generator=draw)
        for place in ignored:
            labels[place] = -100
        yield f"with {int((labels == -100).sum())} labels of -100", logits, labels


causal_loss = function_exercise(
    "ex02_1",
    "the loss of two texts, with labels of -100 and without",
    "The logits at one place belong to the label at the next: leave out the last logits and the first labels.",
    "`F.cross_entropy` takes logits of shape (tokens, vocabulary) and labels of shape (tokens,): flatten the texts.",
    "Its `ignore_index` is -100 by default. It leaves those labels out of the sum and out of the count.",
    right=_loss,
    cases=_texts,
    mistakes={
        "the logits at a token are compared with the same token; they predict the next one.": partial(_loss, shift=0),
        "the labels are shifted the wrong way: each token is compared with the one before.": partial(_loss, shift=-1),
        "the labels are shifted by two tokens, so the model would learn to leave one out.": partial(_loss, shift=2),
        "the sum is right, but it is divided by all tokens. Divide by those that count.": partial(_loss, counted="all"),
        "labels of -100 are counted as token 0. Leave them out.": partial(_loss, counted="token 0"),
        "that is the sum over tokens; the mean is asked for.": partial(_loss, counted="none"),
        "each text counts the same here, however short. Each token should.": partial(_loss, counted="text by text"),
    },
    keeps=True,
)


QUIZ = Quiz(
    "quiz02",
    "Somebody multiplies the loss by 10. Nothing is clipped, and AdamW's epsilon is too small to matter. "
    "How do the weights move?",
    {
        "a": "As before: both moments grow along, and the factor cancels.",
        "b": "10 times as far in every step.",
        "c": "A hundredth as far, because the second moment is of the squared gradient.",
        "d": "As before in the first step only; later, the averages differ.",
    },
    {
        "a": "yes: m grows tenfold, v a hundredfold, and its square root tenfold. Only the ratio counts.",
        "b": "no: that would be plain gradient descent. AdamW divides by the typical size of the gradient.",
        "c": "no: v grows a hundredfold, but its square root is what m is divided by, and m grows tenfold, too.",
        "d": "no: both moments are averages of gradients that are all ten times as large, in every step.",
    },
    right="a",
)
