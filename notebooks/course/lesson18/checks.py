"""Scaling out: how many cards a model in parts needs."""

import math
from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, number


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


QUIZ = Quiz(
    "quiz18",
    "LoRA on `llama2-7b`, with weights in fp32, needs 30 GiB, and each of your eight cards of 80 GB holds that. With "
    "DDP each process sends 0.14 GB a step.\nYou choose FSDP all the same. What becomes of the bytes that each sends?",
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
        "d": "yes: about 47 GB. A block computes with all of its weights, frozen or not, and they are gathered in both "
        "passes. LoRA sends little with DDP only. Use FSDP for what does not fit a card otherwise.",
    },
    right="d",
)
