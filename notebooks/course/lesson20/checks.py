"""A project of one's own: how many sources a test needs."""

import numpy as np
from scipy import stats

from course.exercises import Quiz, Wrong, function_exercise, number

WIDE = [0.9, -1.1, 0.2, 1.3, -0.6]
CASES = (
    ("for a pilot of five sources", WIDE, 0.5),
    ("for the same pilot and a wider interval", WIDE, 0.9),
    ("for a pilot of eight sources", [0.12, 0.31, -0.05, 0.2, 0.44, 0.07, 0.18, 0.25], 0.05),
    ("for an interval that two sources would give", [0.5, 0.51, 0.49], 0.2),
)


def _needed(ddof=1, freedom=lambda n, pilot: n - 1, tail=0.975):
    """The search for the number, with what students change in it."""

    def sources_needed(pilot, reach):
        s, n = np.std(pilot, ddof=ddof), 2
        while stats.t.ppf(tail, freedom(n, pilot)) * s / n**0.5 > reach:
            n += 1
        return n

    return sources_needed


def _whole(given: object, *_) -> float:
    if number(given) != round(number(given)):
        raise Wrong(f"{number(given):.2f} is no number of sources; the next whole one is asked for.")
    return number(given)


sources_needed = function_exercise(
    "ex20_1",
    "the numbers of sources for three pilot runs and four half-widths that are wanted",
    "Begin with $n = 2$ and go up by one until the half-width is small enough: a `while` loop.",
    "`np.std` divides by the number of values, unless you give it `ddof=1`. For an interval at 95%, the factor is "
    "`stats.t.ppf(0.975, ...)`.",
    "The degrees of freedom are those of the planned test, so they change in every round: `n - 1`.",
    right=_needed(),
    cases=CASES,
    read=_whole,
    mistakes={
        "this has n degrees of freedom; n differences leave n − 1.": _needed(freedom=lambda n, pilot: n),
        "this takes 1.96; with few sources, Student's factor is larger.": _needed(freedom=lambda n, pilot: np.inf),
        "this takes the degrees of freedom of the pilot; the final interval has those of the test.": _needed(
            freedom=lambda n, pilot: len(pilot) - 1
        ),
        "this is the standard deviation with division by the number of values; divide by one less.": _needed(ddof=0),
        "this takes the factor of a 90% interval: 2.5% lie beyond each end of one at 95%.": _needed(tail=0.95),
    },
)


QUIZ = Quiz(
    "quiz20",
    "Your plan calls `lora` the cheaper, and 5% worthwhile. The gain of `full` has an interval from -3% to +9%.\n"
    "What do you write?",
    {
        "a": "There is no difference between the two.",
        "b": "`full` is better by 3%, the middle of the interval.",
        "c": "This study cannot tell; `full` may be better by up to 9% or worse by up to 3%.",
        "d": "Nothing yet: I check which documents are hard for `full` and leave them out.",
    },
    {
        "a": "no: the interval reaches to 9%, beyond what you call worthwhile. You have not found a difference, which "
        "is not the same as having shown that there is none.",
        "b": "no: zero is in the interval, so chance alone could explain a difference of this size.",
        "c": "yes. It says what is known, and a reader can see how much more text would decide it.",
        "d": "no: that is to choose by the test split, and any result can be made in this way.",
    },
    right="c",
)
