"""The leaderboard: how many questions a score needs, two rows told apart, and what the answers to each would add."""

import math
from functools import partial

import numpy as np

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, near, number_exercise

Z = 1.96


QUESTIONS = 0.25 * (Z / 0.03) ** 2
enough_questions = number_exercise(
    "ex17_1",
    "the smallest number of questions for which 1.96 standard errors are at most 3 points",
    "The standard error of a share p of n questions is √(p (1 − p) / n). With p = 0.5, for which n is 1.96 times that "
    "equal to 0.03?",
    "Square both sides: 1.96² · 0.25 / n = 0.03². Solve for n, and round up to a whole question.",
    right=math.ceil(QUESTIONS),
    mistakes={
        "there is no part of a question: a whole number is asked for.": QUESTIONS,
        "with that many, the interval still reaches a little more than 3 points: round up.": math.floor(QUESTIONS),
        "there the standard error is 3 points; the interval reaches 1.96 times as far.": 278,
        "that takes 2 for 1.96, which is close, and a few dozen questions too many.": 1112,
        "that is the root of it: the error falls with the root of the questions.": 33,
        "that is for an interval which is 3 points wide in all; here it reaches 3 points to each side.": 4269,
        "that is for an interval which reaches 6 points to each side.": 267,
        "that is for the difference of two scores; here it is one score.": 2135,
    },
    within=1e-4,
)


@exercise(
    "ex17_2",
    "eight pairs of scores, close and far, on tests of 100 to 10,000 questions",
    "Turn both counts into shares. What is the variance of each share, and what of their difference?",
    "The variances add up, also where the shares are subtracted. The standard error is the root of the sum.",
    "True where the difference, without its sign, is larger than 1.96 standard errors.",
)
def told_apart(answer: object) -> None:
    """Judge a function that says whether two rows of a leaderboard can be told apart."""
    cases = [  # right, other, questions
        (694, 663, 1319),
        (694, 648, 1319),
        (694, 570, 1319),
        (570, 694, 1319),
        (694, 640, 1319),
        (60, 45, 100),
        (5_130, 4_970, 10_000),
        (40, 22, 1319),
    ]
    for right, other, questions in cases:
        given = called(answer, right, other, questions)
        if given not in (True, False):
            raise Wrong(f"True or False is asked for, and your function returns {given!r:.40}.")
        one, two = right / questions, other / questions
        first, second = (math.sqrt(p * (1 - p) / questions) for p in (one, two))
        apart, error = abs(one - two), math.hypot(first, second)
        true = apart > Z * error
        if bool(given) == true:
            continue
        case = f"for {right:,} and {other:,} of {questions:,} questions, your function returns {bool(given)}:"
        points = f"the difference is {100 * apart:.1f} points, and its standard error {100 * error:.2f}"
        if true and other > right:
            raise Wrong(f"{case} the first score may be the lower one, too.")
        if true and apart < Z * (first + second):
            raise Wrong(
                f"{case} {points}. Two errors do not add up, their squares do; two intervals that overlap say nothing."
            )
        if not true and apart > Z * max(first, second):
            raise Wrong(f"{case} {points}. Both scores have an error, and both belong in that of the difference.")
        if not true and apart > error:
            raise Wrong(f"{case} {points}. The interval reaches 1.96 times as far as the error.")
        raise Wrong(f"{case} {points}, so the interval {'excludes' if true else 'includes'} zero.")


def _answers():
    chance = np.random.default_rng(16)
    hard = chance.random(2000)
    return [
        ("for two models that find the same questions hard", (hard > 0.5) * 1, (hard > 0.45) * 1),
        ("for two models that have nothing in common", chance.integers(0, 2, 400), chance.integers(0, 2, 400)),
        ("for two models that answer alike", np.array([1, 0, 1, 1, 0] * 20), np.array([1, 0, 1, 1, 0] * 20)),
        ("for two models of which one knows what the other does not", np.array([1, 0] * 50), np.array([0, 1] * 50)),
        ("for a weak and a strong model", (hard > 0.9) * 1, (hard > 0.2) * 1),
    ]


error_of_pairs = function_exercise(
    "ex17_3",
    "five pairs of models: alike, unlike, equal, opposed, and 2,000 questions",
    "For each question there is a difference: 1 where only the first was right, −1 where only the other was, else 0.",
    "The difference of the two scores is the mean of these differences. What is the standard error of a mean?",
    "The standard deviation of the differences, divided by the root of their number.",
    right=lambda one, other: (one - other).std() / math.sqrt(len(one)),
    cases=_answers,
    mistakes={
        "that is the error where the covariance is zero, and these answers show what it is.": lambda one, other: (
            math.sqrt((one.var() + other.var()) / len(one))
        ),
        "that is how much single questions differ; the error of their mean is asked for.": lambda one, other: (
            one - other
        ).std(),
        "that is the variance; the standard error is its root.": lambda one, other: (one - other).var() / len(one),
        "a question that only the other got right is −1, not 1.": lambda one, other: (
            abs(one - other).std() / math.sqrt(len(one))
        ),
        "that is the difference itself; how much chance moves it is asked for.": lambda one, other: abs(
            one.mean() - other.mean()
        ),
    },
    alike=partial(near, within=0.002),
)


QUIZ = Quiz(
    "quiz17",
    "On a leaderboard, method A has 51.3% and method B 50.2%, each trained once. The test has 1,319 questions, so the\n"
    "standard error of the difference is about 1.9 points. What may be concluded?",
    {
        "a": "A is better than B, by about a point.",
        "b": "A and B are equally good.",
        "c": "This test does not tell the two models apart, and one run says little about the methods.",
        "d": "With five seeds of each, this test would show which of the two is better.",
    },
    {
        "a": "no: the 95% interval of the difference reaches from about −2.7 to 4.9 points, so B may as well be ahead.",
        "b": "no: the interval holds zero, but also differences of several points. Not told apart does not mean equal.",
        "c": "yes: the questions alone could explain the difference, and how much a seed changes is not in the table.",
        "d": "not so: more seeds say more about these 1,319 questions. The error that comes from the choice of "
        "questions stays as large as before.",
    },
    right="c",
)
