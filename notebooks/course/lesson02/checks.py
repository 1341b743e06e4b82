"""Inside a language model: a perplexity by hand, causal attention, and documents kept apart in one block."""

import math
from functools import partial

import torch

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind, number, number_exercise
from course.small import close_tensors, tensor

CHANCES = (1 / 2, 1 / 4, 1 / 8, 1 / 8)
LOSS = -sum(map(math.log, CHANCES)) / 4
perplexity_of_four = number_exercise(
    "ex02_1",
    "the perplexity of a text of four tokens, to one percent",
    "First the loss of each token: the negative logarithm of its probability. Then their mean.",
    "Perplexity is `math.exp(mean)`, where `mean` is the mean of `-math.log(p)` over the four tokens.",
    right=math.exp(LOSS),
    mistakes={
        "that is the mean loss in nats; perplexity is its exponential.": LOSS,
        "that is the mean loss in bits; perplexity is asked for.": LOSS / math.log(2),
        "that is the summed loss in nats: divide by the tokens, then take the exponential.": 4 * LOSS,
        "the losses were summed. Perplexity belongs to the mean loss of one token.": math.exp(4 * LOSS),
        "the mean was taken of the probabilities. Take it of their logarithms.": 1 / (sum(CHANCES) / 4),
        "that is the mean of 1/p. Take the mean of the logarithms, then exp.": sum(1 / p for p in CHANCES) / 4,
        "the sign is turned round: a loss is *minus* the logarithm of a probability.": math.exp(-LOSS),
        "with logarithms to the base e, perplexity is a power of e, not of 2.": 2**LOSS,
    },
)


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
    "ex02_2",
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


@exercise(
    "ex02_3",
    "mask and positions for one document, for two, for three, and for documents of one token",
    "Two conditions have to hold at once: the same document, and not the future.",
    "`owners[:, None] == owners[None, :]` compares each token with each other. `&` joins it with the causal mask.",
    "A token's position is the number of tokens that it may look at, minus one: `may_look.sum(1) - 1`.",
)
def keep_apart(answer: object) -> None:
    """Judge a function for the mask and the positions of packed documents."""
    for lengths in ((4,), (3, 2), (2, 4, 3), (1, 1, 3)):
        owners = torch.tensor([number_ for number_, length in enumerate(lengths) for _ in range(length)])
        given = called(answer, owners.clone())
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong(f"two tensors are asked for, the mask and the positions, and this is {kind(given)}.")
        _judge_apart(*given, owners, f"for documents of {', '.join(map(str, lengths))} tokens")


def _judge_apart(mask: object, positions: object, owners, case: str) -> None:
    tokens = len(owners)
    if not isinstance(mask, torch.Tensor) or mask.shape != (tokens, tokens):
        shape = tuple(mask.shape) if isinstance(mask, torch.Tensor) else kind(mask)
        raise Wrong(f"{case} the mask is {shape}: expected a tensor of shape ({tokens}, {tokens}).")
    if mask.dtype != torch.bool:
        raise Wrong(f"{case} the mask holds {mask.dtype}: expected True and False.")
    may_look = (owners[:, None] == owners).tril()
    for row, column in (mask != may_look).nonzero().tolist():
        if mask[row, column]:
            why = "which is the future" if column > row else "across the border of a document"
            raise Wrong(f"{case} token {row} may look at token {column}, {why}.")
        if row == column:
            raise Wrong(f"{case} token {row} may not look at itself, so it may have nothing to look at.")
        raise Wrong(f"{case} token {row} may not look at token {column}, which is earlier in its own document.")
    right = [int((owners[:place] == owners[place]).sum()) for place in range(tokens)]
    if not isinstance(positions, torch.Tensor | list | tuple) or len(positions) != tokens:
        raise Wrong(f"{case} {tokens} positions are asked for, and this is {kind(positions)}.")
    found = [number(position) for position in positions]
    if found == right:
        return
    if found == list(range(tokens)):
        raise Wrong(f"{case} the positions go on across the border: each document begins at 0 again.")
    if found == [place + 1 for place in right]:
        raise Wrong(f"{case} the positions begin at 1; expected was 0.")
    raise Wrong(f"{case} the positions are {found}.")


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
