"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import math

import numpy as np


def shares(right, other, questions):
    return right / questions, other / questions


def errors(right, other, questions):
    return [math.sqrt(p * (1 - p) / questions) for p in shares(right, other, questions)]


def overlapping(right, other, questions):
    one, two = shares(right, other, questions)
    return abs(one - two) > 1.96 * sum(errors(right, other, questions))


def with_its_sign(right, other, questions):
    one, two = shares(right, other, questions)
    return one - two > 1.96 * math.hypot(*errors(right, other, questions))


def one_error(right, other, questions):
    one, two = shares(right, other, questions)
    return abs(one - two) > 1.96 * errors(right, other, questions)[0]


def without_the_factor(right, other, questions):
    one, two = shares(right, other, questions)
    return abs(one - two) > math.hypot(*errors(right, other, questions))


def points(right, other, questions):
    return abs(right - other) > 1.96 * math.hypot(*errors(right, other, questions))


def never(right, other, questions):
    return False


def no_covariance(one, other):
    return math.sqrt((one.mean() * (1 - one.mean()) + other.mean() * (1 - other.mean())) / len(one))


def of_one_question(one, other):
    return (one - other).std()


def the_variance(one, other):
    return (one - other).var() / len(one)


def no_sign(one, other):
    return np.abs(one - other).std() / math.sqrt(len(one))


def the_difference(one, other):
    return abs(one.mean() - other.mean())


WRONG = {
    "ex16_1": [
        (1067.1, "no part of a question"),
        (1067, "round up"),
        (278, "there the standard error is 3 points"),
        (1112, "takes 2 for 1.96"),
        (33, "the root of it"),
        (4269, "3 points wide in all"),
        (267, "reaches 6 points"),
        (2135, "the difference of two scores"),
        (500, "reaches further than 3 points"),
        (3000, "fewer are, too"),
        ("1068", "a number is asked for"),
    ],
    "ex16_2": [
        (overlapping, "their squares do"),
        (with_its_sign, "may be the lower one"),
        (one_error, "Both scores have an error"),
        (without_the_factor, "1.96 times as far"),
        (never, "excludes zero"),
        (lambda right, other, questions: "no", "True or False"),
    ],
    "ex16_3": [
        (no_covariance, "where the covariance is zero"),
        (of_one_question, "the error of their mean"),
        (the_variance, "the standard error is its root"),
        (no_sign, "is −1, not 1"),
        (the_difference, "the difference itself"),
        (lambda one, other: 0.5, "expected"),
    ],
}
