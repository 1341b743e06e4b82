"""Inside a language model: a perplexity by hand, causal attention, and documents kept apart in one block."""

import math

from course.exercises import Quiz, Wrong, called, exercise, kind, near, number


@exercise(
    "ex02_1",
    1,
    "the perplexity of a text of four tokens, to one percent",
    "First the loss of each token: the negative logarithm of its probability. Then their mean.",
    "Perplexity is `math.exp(mean)`, where `mean` is the mean of `-math.log(p)` over the four tokens.",
)
def perplexity_of_four(answer: object) -> None:
    """Judge the perplexity that belongs to four probabilities."""
    chances = (1 / 2, 1 / 4, 1 / 8, 1 / 8)
    loss = -sum(map(math.log, chances)) / 4
    mistakes = {
        loss: "that is the mean loss in nats; perplexity is its exponential.",
        loss / math.log(2): "that is the mean loss in bits; perplexity is asked for.",
        4 * loss: "that is the summed loss in nats: divide by the tokens, then take the exponential.",
        math.exp(4 * loss): "the losses were summed. Perplexity belongs to the mean loss of one token.",
        1 / (sum(chances) / 4): "the mean was taken of the probabilities. Take it of their logarithms.",
        sum(1 / p for p in chances) / 4: "that is the mean of 1/p. Take the mean of the logarithms, then exp.",
        math.exp(-loss): "the sign is turned round: a loss is *minus* the logarithm of a probability.",
        2**loss: "with logarithms to the base e, perplexity is a power of e, not of 2.",
    }
    for value, why in mistakes.items():
        if near(answer, value, within=0.005):
            raise Wrong(why)
    if not near(answer, math.exp(loss)):
        raise Wrong(f"{number(answer):.4g} is not it.")


@exercise(
    "ex02_2",
    2,
    "the output of your function for three heads of different shapes, against a computation token by token",
    "The scores are `q @ k.T`, of shape (tokens, tokens). Row i belongs to the token that looks.",
    "Divide by the square root of `q.shape[1]`, set the future to `-torch.inf`, and take the softmax of each row.",
    "`torch.ones(n, n, dtype=torch.bool).tril()` is True where a token may look; negate it with `~` for `masked_fill`.",
)
def causal_attention(answer: object) -> None:
    """Judge a function for causal attention of one head."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for tokens, width in ((5, 3), (8, 16), (4, 4)):
        q, k, v = (2 * torch.randn(tokens, width, generator=generator) for _ in range(3))
        given = called(answer, q.clone(), k.clone(), v.clone())
        case = f"for {tokens} tokens and d = {width}"
        if not isinstance(given, torch.Tensor):
            raise Wrong(f"a tensor is asked for, and your function returns {kind(given)}.")
        given = given.detach().float()
        if given.shape == (tokens, tokens) and tokens != width:
            raise Wrong(f"{case} the weights come back; multiply them with v.")
        if given.shape != v.shape:
            raise Wrong(f"{case} the result has the shape {tuple(given.shape)}, not {tuple(v.shape)}.")
        if given.isnan().any():
            raise Wrong(f"{case} the first token has nothing to look at (nan). It may look at itself.")
        if torch.allclose(given, _attention(q, k, v, range), atol=1e-4):
            continue
        mistakes = {
            "every token looks at the future, too: where is the mask": _attention(q, k, v, None),
            "the scores are not divided by the square root of d": _attention(q, k, v, range, scale=1),
            "the scores are divided by d; its square root is asked for": _attention(q, k, v, range, scale=width),
            "the mask is turned round: tokens look at the future only": _attention(q, k, v, _future),
            "the masked scores are set to zero. After the softmax they still have weight; -inf has none": (
                _filled_with_zero(q, k, v)
            ),
            "the softmax goes over columns. The weights of each *row* add up to one": _over_columns(q, k, v),
            "queries and keys are in each other's place": _attention(k, q, v, range),
        }
        told = [why for why, wrong in mistakes.items() if torch.allclose(given, wrong, atol=1e-4)]
        raise Wrong(f"{case} {told[0] if told else 'the numbers are others'}.")


def _future(count: int, tokens: int) -> range:
    return range(count - 1, tokens)


def _attention(q, k, v, sees, *, scale: float | None = None):
    """Token by token: each looks at the places that `sees` names, by its number counted from 1; None: at all."""
    import torch

    rows = []
    for number_, query in enumerate(q, 1):
        places = list(range(len(q)) if sees is None else sees(number_) if sees is range else sees(number_, len(q)))
        scores = torch.stack([query @ k[place] for place in places]) / (scale or q.shape[1] ** 0.5)
        rows.append((scores.softmax(0)[:, None] * v[places]).sum(0))
    return torch.stack(rows)


def _filled_with_zero(q, k, v):
    return (q @ k.T / q.shape[1] ** 0.5).tril().softmax(-1) @ v


def _over_columns(q, k, v):
    import torch

    hidden = torch.ones(len(q), len(q), dtype=torch.bool).triu(1)
    return (q @ k.T / q.shape[1] ** 0.5).masked_fill(hidden, -torch.inf).softmax(0) @ v


@exercise(
    "ex02_3",
    3,
    "mask and positions for one document, for two, for three, and for documents of one token",
    "Two conditions have to hold at once: the same document, and not the future.",
    "`owners[:, None] == owners[None, :]` compares each token with each other. `&` joins it with the causal mask.",
    "A token's position is the number of tokens that it may look at, minus one: `may_look.sum(1) - 1`.",
)
def keep_apart(answer: object) -> None:
    """Judge a function for the mask and the positions of packed documents."""
    import torch

    for lengths in ((4,), (3, 2), (2, 4, 3), (1, 1, 3)):
        owners = torch.tensor([number_ for number_, length in enumerate(lengths) for _ in range(length)])
        given = called(answer, owners.clone())
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise Wrong(f"two tensors are asked for, the mask and the positions, and this is {kind(given)}.")
        _judge_apart(*given, owners, f"for documents of {', '.join(map(str, lengths))} tokens")


def _judge_apart(mask: object, positions: object, owners, case: str) -> None:
    import torch

    tokens = len(owners)
    if not isinstance(mask, torch.Tensor) or mask.shape != (tokens, tokens):
        shape = tuple(mask.shape) if isinstance(mask, torch.Tensor) else kind(mask)
        raise Wrong(f"{case} the mask is {shape}: expected a tensor of shape ({tokens}, {tokens}).")
    if mask.dtype != torch.bool:
        raise Wrong(f"{case} the mask holds {mask.dtype}: expected True and False.")
    for row in range(tokens):
        for column in range(tokens):
            same, past = bool(owners[row] == owners[column]), column <= row
            if bool(mask[row, column]) == (same and past):
                continue
            if bool(mask[row, column]) and not past:
                raise Wrong(f"{case} token {row} may look at token {column}, which is the future.")
            if bool(mask[row, column]):
                raise Wrong(f"{case} token {row} may look at token {column}, across the border of a document.")
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
TASKS = (perplexity_of_four, causal_attention, keep_apart, QUIZ)
