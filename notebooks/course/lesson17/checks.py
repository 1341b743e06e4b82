"""The leaderboard: how many questions a score needs, two rows told apart, and what the answers to each would add."""

import math
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, number_exercise

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
    """Models of which some find the same questions hard; no pair is near the limit."""
    hard = np.random.default_rng(17).random(1000)
    chance = np.random.default_rng(18)
    for story, levels, shared in (
        ("for four models that find the same questions hard", (0.52, 0.5, 0.44, 0.2), 0.97),
        ("for two models that have nothing in common", (0.55, 0.5), 0.0),
        ("for seven models, of which six are about as good", (0.5, 0.51, 0.49, 0.5, 0.52, 0.46, 0.9), 0.0),
    ):
        columns = {}
        for place, level in enumerate(levels):
            luck = np.where(chance.random(1000) < shared, hard, chance.random(1000))
            columns[f"model {'ABCDEFG'[place]}"] = (luck < level) * 1
        yield story, pd.DataFrame(columns)
    worse = np.repeat([0, 1, 1, 0], [58, 31, 500, 411])  # 58 questions that only the others get right, 31 that only it
    columns = {"model A": worse}
    for place, name in enumerate("BCDEFG"):
        columns[f"model {name}"] = np.repeat([1, 0, 1, 0], [58, 31, 500, 411])
        columns[f"model {name}"][[100 + place, 600 + place]] = 0, 1  # so that no two are equal
    yield "for six models that answer nearly alike and a slightly worse one", pd.DataFrame(columns)


def _separated(answers, *, pairs=None, paired=True, single=False, root=True) -> list[tuple]:
    """The pairs whose interval excludes zero; the options make it wrong, each as somebody does."""
    found, both = [], list(combinations(answers.columns, 2))
    factor = stats.norm.ppf(1 - 0.05 / (pairs or len(both)) / 2)
    for one, other in both:
        difference = answers[one] - answers[other]
        variance = difference.var() if paired else answers[one].var() + answers[other].var()
        error = math.sqrt(variance / len(answers)) if root else math.sqrt(variance)
        if (difference.mean() if single else abs(difference.mean())) > factor * error:
            found.append((one, other))
    return found


def _pairs(given, answers):
    def is_pair(pair):
        return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)

    if not isinstance(given, list | tuple | set) or not all(map(is_pair, given)):
        raise Wrong(f"a list of pairs of column names is asked for, and your function returns {given!r:.60}.")
    return list(given)


answers_of_all = function_exercise(
    "ex17_3",
    "four tables of 1,000 questions with two to seven models",
    "For each question there is a difference: 1 if only the first was right, −1 if only the other was, else 0.",
    "The difference of two scores is the mean of these differences. What is the standard error of a mean?",
    "With m pairs, the factor is `stats.norm.ppf(1 - 0.05 / m / 2)`. Compare the mean, without its sign, with factor "
    "times error.",
    right=_separated,
    cases=_answers,
    read=_pairs,
    alike=lambda given, expected: set(map(frozenset, given)) == set(map(frozenset, expected)),
    mistakes={
        "that corrects for the number of models; correct for the number of pairs.": lambda answers: _separated(
            answers, pairs=answers.shape[1]
        ),
        "these are the pairs without a correction; their number makes false alarms likely.": partial(
            _separated, pairs=1
        ),
        "those errors are of unpaired scores; take the differences question by question.": partial(
            _separated, paired=False
        ),
        "a difference below zero counts, too: leave its sign out.": partial(_separated, single=True),
        "that is how much single questions differ; the error of their mean is asked for.": partial(
            _separated, root=False
        ),
    },
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
