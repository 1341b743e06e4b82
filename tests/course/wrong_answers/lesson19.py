"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

PAD = -100


def _by_token(tokens, only_read, length):
    """Padding masked by its token, which is the end token too."""
    return [PAD if place < only_read or token == tokens[-1] else token for place, token in enumerate(tokens)]


def _end_forgotten(tokens, only_read, length):
    return [PAD] * only_read + tokens[only_read : length - 1] + [PAD] * (len(tokens) - length + 1)


def _shifted(tokens, only_read, length):
    learned = [*tokens[only_read + 1 : length], tokens[length - 1]]
    return [PAD] * only_read + learned + [PAD] * (len(tokens) - length)


def _too_short(tokens, only_read, length):
    return [PAD] * only_read + tokens[only_read:length]


def _one_more(tokens, only_read, length):
    return [PAD] * only_read + tokens[only_read : length + 1] + [PAD] * max(0, len(tokens) - length - 1)


WRONG = {
    "ex19_1": [
        (2.5, "the mean of the rows' means"),
        (3.7, "the end tokens have labels, too"),
        (42, "the sum over the labels"),
        (5, "the sum of the two means"),
        (3.25, "questions carry no labels"),
        (0.1, "every label counts the same"),
        ("3.5 nats", "a number is asked for"),
    ],
    "ex19_2": [
        (_by_token, "the end token of the answer has no label"),
        (_end_forgotten, "the end token of the answer has no label"),
        (_shifted, "shifted by one"),
        (_too_short, "one for each token"),
        (_one_more, "padding has labels"),
        (lambda tokens, only_read, length: list(tokens), "the question has labels"),
        (lambda tokens, only_read, length: [PAD] * len(tokens), "has no label"),
        (lambda tokens, only_read, length: None, "does it end with"),
        (lambda tokens, only_read, length: (1, 2), "expected a list"),
    ],
    "ex19_3": [
        (3.0486, "the sign of the margin"),
        (30, "that is the margin"),
        (3, "beta times the margin"),
        (0.9526, "that is the sigmoid"),
        (0.6931, "the loss at the start"),
        (0.4375, "subtract the change of the other one"),
        (0, "never reaches 1"),
        (17, "put the two changes into the formula"),
    ],
}
