"""The leaderboard: which pairs the answers to each question tell apart."""

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
    few = np.repeat([0, 1], [6, 994])
    yield "for three models, of which two are equal", pd.DataFrame({"model A": few**0, "model B": few, "model C": few})


def _separated(answers, *, pairs=None, test=None, sides="two-sided") -> list[tuple]:
    """The pairs that McNemar's exact test separates; the options make it wrong, each as somebody does."""
    found, both = [], list(combinations(answers.columns, 2))
    for one, other in both:
        b, c = (int((answers[one] - answers[other] == sign).sum()) for sign in (1, -1))
        chance = stats.binomtest(b, b + c, alternative=sides).pvalue if b + c else 1
        if (test(answers[one], answers[other]) if test else chance) < 0.05 / (pairs or len(both)):
            found.append((one, other))
    return found


def _normal(one, other):
    error = (one - other).sem()
    return 2 * stats.norm.sf(abs((one - other).mean()) / error) if error else 1


def _pairs(given, answers):
    def is_pair(pair):
        return isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)

    if not isinstance(given, list | tuple | set) or not all(map(is_pair, given)):
        raise Wrong(f"a list of pairs of column names is asked for, and your function returns {given!r:.60}.")
    return list(given)


answers_of_all = function_exercise(
    "ex17_1",
    "five tables of 1,000 questions with two to seven models",
    "Count the questions that only the first model gets right, and those that only the other does: b and c.",
    "If both models were equally good, b would be like b + c throws of a coin: `stats.binomtest(b, b + c).pvalue`.",
    "With m pairs, p has to be below 0.05 / m. Where b + c is 0 there is nothing to test.",
    right=_separated,
    cases=_answers,
    read=_pairs,
    alike=lambda given, expected: set(map(frozenset, given)) == set(map(frozenset, expected)),
    mistakes={
        "correct for the number of pairs, not of models.": lambda answers: _separated(answers, pairs=answers.shape[1]),
        "the normal interval is too narrow where few questions differ.": partial(_separated, test=_normal),
        "without a correction there are false alarms among so many pairs.": partial(_separated, pairs=1),
        "the other model may be the better one: test both sides.": partial(_separated, sides="greater"),
        "only questions that one of the two gets right count, b + c of them.": partial(
            _separated, test=lambda one, other: stats.binomtest(int((one > other).sum()), len(one)).pvalue
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
