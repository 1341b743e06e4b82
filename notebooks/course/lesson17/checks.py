"""The leaderboard: which pairs the answers to each question tell apart."""

import math
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import stats

from course.exercises import Quiz, Wrong, function_exercise


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
    "ex17_1",
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
