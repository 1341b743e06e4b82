"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math
import random
from itertools import chain
from statistics import mean

CHANCE = random.Random(0)


def ends(values, left_out=0.025):
    values = sorted(values)
    return values[round(left_out * len(values))], values[round((1 - left_out) * len(values)) - 1]


def drawn(documents, count=1000):
    return [CHANCE.choices(documents, k=len(documents)) for _ in range(count)]


def loss(documents):
    return sum(map(sum, documents)) / sum(map(len, documents))


def of_tokens(documents):
    tokens = list(chain(*documents))
    return ends(math.exp(mean(CHANCE.choices(tokens, k=len(tokens)))) for _ in range(200))


def not_put_back(documents):
    return ends(math.exp(loss(CHANCE.sample(documents, k=len(documents)))) for _ in range(100))


def one_document_is_special(function):
    """The mistake shows only where there are documents to draw."""
    return lambda documents: (math.exp(loss(documents)),) * 2 if len(documents) == 1 else function(documents)


def of_documents(documents):
    return ends(math.exp(mean(losses)) for losses in documents)


def unweighted(documents):
    return ends(math.exp(mean(mean(losses) for losses in draw)) for draw in drawn(documents))


def in_nats(documents):
    return ends(loss(draw) for draw in drawn(documents))


def the_wrong_way_round(documents):
    return ends(math.exp(loss(draw)) for draw in drawn(documents))[::-1]


def of_90_percent(documents):
    return ends((math.exp(loss(draw)) for draw in drawn(documents)), 0.05)


def all_draws(documents):
    return ends((math.exp(loss(draw)) for draw in drawn(documents)), 0.0)


WRONG = {
    "ex03_1": [
        (0.8, "nats per byte"),
        (4.617, "bits per token"),
        (18.47, "on the wrong side"),
        (0.5545, "the wrong way round"),
        (24.53, "the perplexity"),
        ("1.15", "a number is asked for"),
        (2, "2 is not it"),
    ],
    "ex03_2": [
        (lambda documents: sum(n for n, _ in documents) / sum(t for _, t in documents), "its exponential is asked for"),
        (
            lambda documents: 2 ** (sum(n for n, _ in documents) / sum(t for _, t in documents)),
            "takes the loss for bits",
        ),
        (lambda documents: math.exp(mean(n / t for n, t in documents)), "each document counts the same"),
        (lambda documents: mean(math.exp(n / t) for n, t in documents), "the mean of the documents' perplexities"),
        (
            lambda documents: sum(t * math.exp(n / t) for n, t in documents) / sum(t for _, t in documents),
            "the exponential came too early",
        ),
        (lambda documents: math.exp(mean(n for n, _ in documents)), "the loss was divided by documents"),
        (lambda documents: math.exp(sum(n for n, _ in documents)), "taken of a sum, before it was divided"),
        (lambda documents: [math.exp(n / t) for n, t in documents][-1], "the last document alone"),
        (lambda documents: 7, "a long document and a short one that is harder, [(900.0, 300)"),
        (20.8, "a function is asked for"),
    ],
    "ex03_3": [
        (of_tokens, "It cannot be drawn otherwise"),
        (one_document_is_special(of_tokens), "were they drawn one by one"),
        (not_put_back, "every draw has the same documents"),
        (of_documents, "it says how documents differ"),
        (unweighted, "does every *token* of a draw count the same"),
        (in_nats, "it gives the loss in nats"),
        (one_document_is_special(in_nats), "the ends are losses in nats"),
        (the_wrong_way_round, "in each other's place"),
        (of_90_percent, "too narrow"),
        (all_draws, "which share of draws is left out"),
        (lambda documents: math.exp(loss(documents)), "2 numbers are asked for"),
    ],
}
