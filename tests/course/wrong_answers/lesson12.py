"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math

VALUES, TRAINED = 494_032_768, 29_865_088


def _growing(one_row):
    return one_row["activations"] + one_row["logits and loss"]


def _missing(one_row):
    return one_row["at the end"] - one_row["weights"] - one_row["optimizer state"]


def _everything_grows(one_row):
    return one_row["at the end"] // one_row["at the loss"] + 1


def _one_set_of_gradients(one_row):
    return math.ceil(one_row["gradients"] / _growing(one_row))


def _gradients_at_the_loss(one_row):
    rows = 1
    while _missing(one_row) + rows * _growing(one_row) <= _missing(one_row):
        rows += 1
    return rows


def _without_a_copy(log):
    alive, best, record = {}, {}, 0
    for name, size in log:
        alive[name] = alive.get(name, 0) + size
        if sum(alive.values()) > record:
            best, record = alive, sum(alive.values())
    return best


def _size_only(log):
    now = record = 0
    for _, size in log:
        now += size
        record = max(now, record)
    return record


def _own_moments(log):
    alive, largest = {}, {}
    for name, size in log:
        alive[name] = alive.get(name, 0) + size
        largest[name] = max(largest.get(name, 0), alive[name])
    return largest


def _ever_made(log):
    made = {}
    for name, size in log:
        made[name] = made.get(name, 0) + max(size, 0)
    return made


def _last_size(log):
    alive, best = {}, {}
    for name, size in log:
        alive[name] = size
        if sum(alive.values()) > sum(best.values()):
            best = dict(alive)
    return best


WRONG = {
    "ex12_1": [
        (16 * VALUES / 1e9, "that trains every value"),
        (16 * TRAINED / 1e9, "leaves out the frozen weights"),
        ((4 * VALUES + 16 * TRAINED) / 1e9, "counts the trained weights twice"),
        ((4 * VALUES + 8 * TRAINED) / 1e9, "a part is missing"),
        ((4 * VALUES + 4 * TRAINED) / 1e9, "AdamW keeps two averages"),
        (12 * TRAINED / 1e9, "what training adds"),
        ((4 * VALUES + 12 * TRAINED) / 2**30, "that is in GiB"),
        (4 * VALUES + 12 * TRAINED, "that is in bytes"),
        ("2.33 GB", "a number is asked for"),
    ],
    "ex12_2": [
        (lambda one_row: _missing(one_row) // _growing(one_row), "the end still needs more"),
        (lambda one_row: _missing(one_row) / _growing(one_row), "rows come whole"),
        (lambda one_row: math.ceil(_missing(one_row) / one_row["activations"]), "activations are not all that grows"),
        (lambda one_row: math.ceil(_missing(one_row) / one_row["logits and loss"]), "logits are not all that grows"),
        (lambda one_row: math.ceil(one_row["at the end"] / _growing(one_row)), "all that is alive when the loss"),
        (_everything_grows, "do weights and optimizer grow"),
        (_one_set_of_gradients, "one set of gradients is not all"),
        (_gradients_at_the_loss, "are the gradients there already"),
        (lambda one_row: one_row["at the loss"] > one_row["at the end"], "a number is asked for"),
        (lambda one_row: None, "returns nothing yet"),
    ],
    "ex12_3": [
        (_without_a_copy, "which goes on changing"),
        (_size_only, "what is alive then is asked for"),
        (_own_moments, "each at its own moment"),
        (_ever_made, "all that was ever made"),
        (_last_size, "is it alive at that moment"),
        (lambda log: list(log), "a dict is asked for"),
    ],
}
