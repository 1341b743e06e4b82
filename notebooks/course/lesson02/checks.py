"""Inside a language model: causal attention, and the loss of texts of which some tokens do not count."""

import math
from functools import partial

import torch
from torch.nn import functional as F

from course.exercises import Quiz, Wrong, function_exercise
from course.small import close_tensors, tensor


def _attention(q, k, v, *, scale: float = 0.5, filled: float = -math.inf, across: int = 1, future: bool = False):
    """Causal attention of one head; the options make it wrong, each as somebody does."""
    scores = q @ k.T / q.shape[1] ** scale
    later = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return scores.masked_fill(later.T if future else later, filled).softmax(across) @ v


def _token_by_token(q, k, v):
    """Each token looks at itself and at those before it, in a loop."""
    rows = []
    for count, query in enumerate(q, 1):
        scores = torch.stack([query @ key for key in k[:count]]) / q.shape[1] ** 0.5
        rows.append((scores.softmax(0)[:, None] * v[:count]).sum(0))
    return torch.stack(rows)


def _averaged(given, q, k, v):
    if isinstance(given, torch.Tensor) and given.shape == (len(q), len(q)) != v.shape:
        raise Wrong("the weights come back; multiply them with v.")
    given = tensor(given, v)
    if given.isnan().any():
        raise Wrong("the first token has nothing to look at (nan). It may look at itself.")
    return given


def _heads():
    draw = torch.Generator().manual_seed(0)
    for tokens, width in ((5, 3), (8, 16), (4, 4)):
        q, k, v = (2 * torch.randn(tokens, width, generator=draw) for _ in range(3))
        yield f"for {tokens} tokens and d = {width}", q, k, v


causal_attention = function_exercise(
    "ex02_1",
    "the output of your function for three heads of different shapes, against a computation token by token",
    "The scores are `q @ k.T`, of shape (tokens, tokens). Row i belongs to the token that looks.",
    "Divide by the square root of `q.shape[1]`, set the future to `-torch.inf`, and take the softmax of each row.",
    "`torch.ones(n, n, dtype=torch.bool).tril()` is True where a token may look; negate it with `~` for `masked_fill`.",
    right=_token_by_token,
    cases=_heads,
    mistakes={
        "every token looks at the future, too: where is the mask": lambda q, k, v: (
            (q @ k.T / q.shape[1] ** 0.5).softmax(1) @ v
        ),
        "the scores are not divided by the square root of d": partial(_attention, scale=0),
        "the scores are divided by d; its square root is asked for": partial(_attention, scale=1),
        "the mask is turned round: tokens look at the future only": partial(_attention, future=True),
        "the masked scores are set to zero. After the softmax they still have weight; -inf has none": partial(
            _attention, filled=0.0
        ),
        "the softmax goes over columns. The weights of each *row* add up to one": partial(_attention, across=0),
        "queries and keys are in each other's place": lambda q, k, v: _attention(k, q, v),
    },
    read=_averaged,
    alike=close_tensors,
)


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
    "ex02_2",
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
    "Somebody multiplies the loss by 10, so that every gradient of the whole run is 10 times as large. Nothing is "
    "clipped, and AdamW's epsilon is too small to matter. How do the weights move?",
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
