"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import torch


def _each(of_row):
    """A function of hidden states and lengths that makes one vector of each row."""
    return lambda hidden, lengths: torch.stack([of_row(h, n) for h, n in zip(hidden, lengths.tolist(), strict=True)])


def _changes(hidden, lengths):
    for states, size in zip(hidden, lengths.tolist(), strict=True):
        states[size:] = 0
    return hidden.sum(1) / lengths[:, None]


WRONG = {
    "ex18_1": [
        (83, "plain accuracy"),
        (0.55, "in percent"),
        (110, "divide it by their number"),
        (50, "into the same class"),
        (90, "the first class alone"),
        (20, "the second class alone"),
        (45, "share that is wrong"),
        (77, "is not the mean of"),
    ],
    "ex18_2": [
        (lambda hidden, lengths: hidden.mean(1), "the padding is counted"),
        (_each(lambda h, n: h[:n].sum(0) / len(h)), "divided by the number of columns"),
        (_each(lambda h, n: h[:n].sum(0)), "the sum over the tokens"),
        (_each(lambda h, n: h[n - 1]), "the last token alone"),
        (_each(lambda h, n: h[: max(1, n - 1)].mean(0)), "left out"),
        (_each(lambda h, n: h[:n].mean()), "the shape is (3,)"),
        (lambda hidden, lengths: 3, "a tensor of shape (3, 4)"),
        (lambda hidden, lengths: hidden[:, -1], "are not the means"),
        (_changes, "are changed by it"),
    ],
    "ex18_3": [
        (1000 / 3, "in each of the 50 epochs"),
        (100 / 3, "five times, and not once"),
        (20, "is left out"),
        (10, "twice as much"),
        (93.3, "what is saved; what remains"),
        (0.0667, "in percent"),
        (15, "how many times as much"),
        (2, "compare with full fine-tuning"),
        (77, "costs 3 in each of its 5 epochs"),
    ],
}
