"""Scaling out: how many cards a model in parts needs, and one process's part of the loss of a batch."""

import math
from functools import partial

from course.exercises import Quiz, Wrong, called, close, exercise, function_exercise, number


def _cards(divided, own, gathered, card, most, *, counts=None, share=0.85, need=None):
    """The first number of cards that is enough; the options make it wrong, each as somebody does."""
    need = need or (lambda divided, own, gathered, n: divided / n + own + gathered * (n > 1))
    numbers = counts(most) if counts else range(1, most + 1)
    return next((n for n in numbers if need(divided, own, gathered, n) <= share * card), 0)


def _whole(given, *sizes):
    if math.isinf(given := number(given)):
        raise Wrong("it gives infinity, and 0 is asked for where no number is enough.")
    if given % 1 or given < 0:
        raise Wrong(f"it gives {given:.6g}, and cards come whole.")
    return given


enough_cards = function_exercise(
    "ex18_1",
    "the smallest number of cards, for nine models and cards",
    "Write down what one card needs, and what each of two cards needs. Where do the two differ?",
    "Each of N cards needs divided / N + own, and from two cards on `gathered` as well. It may fill 85% of its size.",
    "Go through `range(1, most + 1)` and return the first number that is enough. After the loop, return 0.",
    right=_cards,
    cases=[
        (f"with {divided} GB divided, {own} own, {gathered} gathered, and at most {most} cards of {card} GB", *sizes)
        for sizes in (
            (112, 5, 3, 80, 8),
            (700, 4, 6, 24, 128),
            (66, 4, 3, 80, 8),
            (20, 5, 3, 40, 8),
            (10, 5, 8, 20, 16),
            (108, 4, 3, 24, 9),
            (108, 4, 3, 24, 8),
            (100, 15, 6, 24, 64),
            (2, 30, 1, 24, 64),
        )
        for divided, own, gathered, card, most in [sizes]
    ],
    mistakes={
        "15% of each card is left free.": partial(_cards, share=1),
        "15% of the *card* is left free; this adds 15% to what is needed.": partial(_cards, share=1 / 1.15),
        "what is gathered is missing: it is there in full on every card, as soon as there are two.": partial(
            _cards, need=lambda divided, own, gathered, n: divided / n + own
        ),
        "what is gathered is not divided: it is there in full on every card, as soon as there are two.": partial(
            _cards, need=lambda divided, own, gathered, n: (divided + gathered * (n > 1)) / n + own
        ),
        "what a card has for itself is there in full, however many there are.": partial(
            _cards, need=lambda divided, own, gathered, n: (divided + own) / n + gathered * (n > 1)
        ),
        "not all of it is divided.": partial(
            _cards, need=lambda divided, own, gathered, n: (divided + own + gathered * (n > 1)) / n
        ),
        "one card has all weights, and nothing to gather.": partial(
            _cards, need=lambda divided, own, gathered, n: divided / n + own + gathered
        ),
        "one card by itself may be enough.": partial(_cards, counts=lambda most: range(2, most + 1)),
        "cards need not double. Fewer are enough.": partial(_cards, counts=lambda most: [1, 2, 4, 8, 16, 32, 64, 128]),
        "`most` cards are there, too: the last number counts.": partial(_cards, counts=lambda most: range(1, most)),
        "so many are not there. 0 is asked for where `most` is not enough.": partial(
            _cards, counts=lambda most: range(1, 100 * most)
        ),
        "no number is enough, so 0 is asked for.": lambda *sizes: _cards(*sizes) or 1,
        "the smallest such number is asked for.": lambda *sizes: sizes[-1],
    },
    read=_whole,
)


def _losses(blocks) -> float:
    return sum(map(sum, blocks))


def _tokens(blocks) -> int:
    return sum(map(len, blocks))


WEIGHED_WRONG = {  # what a process hands in for its share of the blocks of a batch
    "the sum is a mean of means. With equal shares it is right; here a token of the smaller share counts more.": (
        lambda mine, blocks, size: _losses(mine) / max(1, _tokens(mine)) / size
    ),
    "each hands in the mean of its own tokens, so the sum is about as many times the loss as there are processes.": (
        lambda mine, blocks, size: _losses(mine) / max(1, _tokens(mine))
    ),
    "nothing is divided: a mean over tokens is asked for, and these are sums.": lambda mine, *_: _losses(mine),
    "the sums are divided by the number of blocks. It is tokens that count.": lambda mine, blocks, size: (
        _losses(mine) / len(blocks)
    ),
    "the sums are divided by the number of processes. It is tokens that count.": lambda mine, blocks, size: (
        _losses(mine) / size
    ),
    "the parts are also divided by the number of processes. They are summed, not averaged.": (
        lambda mine, blocks, size: _losses(mine) / _tokens(blocks) / size
    ),
    "every block counts the same, so a token of the short block counts more.": lambda mine, blocks, size: (
        sum(sum(block) / len(block) for block in mine) / len(blocks)
    ),
    "each hands in the loss of all blocks, and the sum is many times as large.": lambda mine, blocks, size: (
        _losses(blocks) / _tokens(blocks)
    ),
}


def _dealt(weigh):
    """An answer that deals the blocks like cards."""
    return lambda blocks, rank, size: weigh(blocks[rank::size], blocks, size)


@exercise(
    "ex18_2",
    "the parts of all processes, for six batches with equal and unequal shares",
    "Every token of the batch counts the same, whichever process computes it. Which number is each loss divided by?",
    "`blocks[rank::size]` is every size-th block, starting at number `rank`. Each block is in exactly one such share.",
    "The sum of its own tokens' losses, divided by the number of tokens of the *whole* batch.",
    mistakes={why: _dealt(weigh) for why, weigh in WEIGHED_WRONG.items()},
)
def part_of_the_loss(answer: object) -> None:
    """Judge a function for one process's part of the loss of a batch."""
    called(answer, [[2.0, 4.0], [3.0]], 0, 1)
    full = (4, 4, 4, 4)
    cases = [(full, 2), ((*full, 4), 2), ((*full, 1), 2), ((4, 4), 3), ((*full, 4, 4, 2), 4), ((4, 4, 2), 1)]
    for lengths, size in cases:
        # The losses of block k add up to 2**k, so that every sum tells which blocks are in it.
        blocks = [[2**at / length] * length for at, length in enumerate(lengths)]
        case = f"with blocks of {', '.join(map(str, lengths))} tokens for {size} process{'es' if size > 1 else ''},"
        parts = []
        for rank in range(size):
            try:
                parts.append(number(called(answer, [list(block) for block in blocks], rank, size)))
            except Wrong as wrong:
                nothing = "What does a process without blocks add? " if len(blocks) < size else ""
                raise Wrong(f"{case} in process {rank}: {nothing}{wrong}") from wrong
        _judge_parts(tuple(parts), blocks, size, case)


def _judge_parts(parts, blocks, size, case):
    tokens = _tokens(blocks)
    right = _losses(blocks) / tokens
    taken = [round(part * tokens) for part in parts]
    dealt = close(parts, tuple(of / tokens for of in taken), within=1e-4)
    dealt = dealt and min(taken) >= 0 and max(taken) < 2 ** len(blocks)
    owners = [[rank for rank, of in enumerate(taken) if of >> at & 1] for at in range(len(blocks))]
    counts = [sum(rank in ranks for ranks in owners) for rank in range(size)]
    if dealt and all(len(ranks) == 1 for ranks in owners) and max(counts) <= math.ceil(len(blocks) / size):
        return
    for shares in _ways_to_deal(blocks, size):
        as_it_should_be = tuple(_losses(mine) / tokens for mine in shares)
        for reason, weigh in WEIGHED_WRONG.items():
            found = tuple(weigh(mine, blocks, size) for mine in shares)  # with equal shares some mistakes are none
            if close(parts, found, within=1e-4) and not close(found, as_it_should_be, within=1e-4):
                raise Wrong(f"{case} {reason}")
    if dealt:
        for at, ranks in enumerate(owners):
            if not ranks:
                raise Wrong(f"{case} nobody takes block {at}. Blocks count from 0, and so do processes.")
            if len(ranks) > 1:
                raise Wrong(f"{case} block {at} is taken {len(ranks)} times. Blocks count from 0, and so do processes.")
        raise Wrong(f"{case} the sum is right, but the blocks are not dealt out evenly: they take {counts}.")
    if math.isclose(sum(parts), right, rel_tol=1e-5):
        raise Wrong(f"{case} the sum is right, but a process' part is not that of blocks of its own.")
    raise Wrong(f"{case} the parts add up to {sum(parts):.4g}, and the loss of the batch is {right:.4g}.")


def _ways_to_deal(blocks, size):
    """Like cards; in runs of equal length, rounded up; and rounded down, where some may be left over."""
    up, down = math.ceil(len(blocks) / size), len(blocks) // size
    yield [blocks[rank::size] for rank in range(size)]
    for most in (up, down):
        yield [blocks[rank * most : (rank + 1) * most] for rank in range(size)]


QUIZ = Quiz(
    "quiz18",
    "LoRA on `llama2-7b` needs 30 GiB, and each of your eight cards of 80 GB holds that. With DDP each process sends "
    "0.14 GB a step.\nYou choose FSDP all the same. What becomes of the bytes that each sends?",
    {
        "a": "about as many: frozen weights have no gradients, so nothing of them travels",
        "b": "about one and a half times as many",
        "c": "about an eighth: everything is divided among eight",
        "d": "more than three hundred times as many",
    },
    {
        "a": "no: this is true of DDP. With FSDP, a block's weights have to be gathered before it computes, whether "
        "they are frozen or not.",
        "b": "no: that holds if every value is trained. Then FSDP sends weights twice and gradients once, and DDP "
        "sends gradients twice. Here almost nothing has a gradient, but all weights have to be gathered.",
        "c": "no: an eighth is what each process *keeps*. What it does not keep has to come from the others.",
        "d": "yes: about 46 GB. A block computes with all of its weights, frozen or not, and they are gathered in both "
        "passes. LoRA sends little with DDP only. Use FSDP for what does not fit a card otherwise.",
    },
    right="d",
)
