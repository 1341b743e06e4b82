"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""


def forgives_one_more(losses, patience):
    """Stops after more than `patience` evaluations without a new best loss, not after `patience`."""
    best = 0
    for place, loss in enumerate(losses):
        best = place if loss < losses[best] else best
        if place - best > patience:
            break
    return best


WRONG = {
    "ex04_1": [
        (3.1, "the loss itself"),
        (2**3.1, "a nat belongs to the natural logarithm"),
        (1.131, "the wrong way round"),
        ("22", "a number is asked for"),
        (31, "31 is not it"),
    ],
    "ex04_2": [
        (lambda b, a, gb, ga: (1 - a / b, ga / gb - 1), "percent are asked for"),
        (lambda b, a, gb, ga: (100 * (ga / gb - 1), 100 * (1 - a / b)), "in each other's place"),
        (lambda b, a, gb, ga: (100 * (a / b - 1), 100 * (ga / gb - 1)), "wrong sign"),
        (lambda b, a, gb, ga: 100 * (1 - a / b), "2 numbers are asked for"),
        (lambda b, a, gb, ga: (b - a, ga - gb), "for 120 to 60 on Rust"),
    ],
    "ex04_3": [
        (lambda losses, patience: len(losses) - 1, "the last place, not the best one"),
        (lambda losses, patience: losses.index(min(losses)), "has looked ahead"),
        (lambda losses, patience: min(losses), "not the loss that stands there"),
        (forgives_one_more, "for a curve that"),
        (3, "a function is asked for"),
    ],
}
