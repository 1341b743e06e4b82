"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

import math
import random
from itertools import chain
from statistics import mean

from safetensors import safe_open


def the_same(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, weights in model.named_parameters() if file.get_tensor(name).float().equal(weights)]


def never_missing(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, weights in model.named_parameters() if not file.get_tensor(name).float().equal(weights)]


def only_missing(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, _ in model.named_parameters() if name not in file.keys()]  # noqa: SIM118


def sums(model, path):
    with safe_open(path, "pt") as file:
        return [n for n, weights in model.named_parameters() if not file.get_tensor(n).float().sum().eq(weights.sum())]


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
    "ex01_1": [
        (the_same, "those that did come from it"),
        (never_missing, "File does not contain tensor"),
        (only_missing, "need not have the same values"),
        (sums, "sums and shapes can agree"),
        (lambda model, path: [list(model.parameters())[0]], "one of them is a Parameter"),
        (lambda model, path: ["model.safetensors"], "no parameter has that name"),
    ],
    "ex03_1": [
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
