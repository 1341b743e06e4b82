"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math


def _highest(options, score):
    scores = [score(option) for option in options]
    return scores.index(max(scores))


WRONG = {
    "ex17_1": [
        (4.88448, "rank 8 in bf16"),
        (19.53792, "in fp32"),
        (9_768_960, "these are bytes"),
        (9.3164, "these are MiB"),
        (39.07584, "not with its square"),
        (5, "in step with the rank"),
        ("ten", "a number is asked for"),
    ],
    "ex17_2": [
        (lambda options: _highest(options, sum), "because it is long"),
        (lambda options: _highest(options, max), "only the best token"),
        (lambda options: _highest(options, min), "only the worst token"),
        (lambda options: _highest(options, lambda option: option[0]), "only the first token"),
        (lambda options: 1 + _highest(options, lambda option: sum(option) / len(option)), "counted from 1"),
        (lambda options: max(options), "a place, counted from 0"),
        (lambda options: 0, "another option"),
    ],
    "ex17_3": [
        (lambda difference, changed: int(changed * (1.96 / difference) ** 2), "rounded down"),
        (lambda difference, changed: changed * (1.96 / difference) ** 2, "a whole number"),
        (lambda difference, changed: math.ceil(1.96 / difference * changed), "square"),
        (lambda difference, changed: math.ceil(changed / difference**2), "one standard error"),
        (lambda difference, changed: math.ceil((1.96 * changed / difference) ** 2), "not squared"),
        (lambda difference, changed: 24, "not the smallest such number"),
    ],
}
