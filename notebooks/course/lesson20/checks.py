"""A project of one's own: its decision, and the sentence that reports it."""

import re

import numpy as np
from scipy import stats

from course.exercises import Quiz, Wrong, function_exercise, kind

CASES = (
    ("for a clear gain", [0.4, 0.25, 0.2, 0.15, 0.35], 0.1, "bitfit", "lora"),
    ("for a gain above 0 that may be too small", [0.08, 0.1, 0.07, 0.12, 0.09, 0.06], 0.1, "bitfit", "lora"),
    ("for gains around zero", [0.02, -0.03, 0.05, 0.01, 0.04, -0.01], 0.1, "lora", "full"),
    ("for gains that scatter", [0.9, -0.3, 0.2, 0.6], 0.5, "lora", "full"),
)


def _conclusion(ddof=1, freedom=lambda n, had: n - 1, real=False):
    """What is asked for, with what students change in it."""

    def conclusion(gains, worthwhile, cheap, dear):
        had, gain, s = len(gains), np.mean(gains), np.std(gains, ddof=ddof)
        half = [stats.t.ppf(0.975, freedom(n, had)) * s / n**0.5 for n in range(had, 200)]
        low, high = gain - half[0], gain + half[0]
        winner = cheap if high < worthwhile else dear if low > 0 and (real or gain >= worthwhile) else None
        enough = next(
            n for n, h in enumerate(half, had) if gain + h < worthwhile or gain - h > 0 and gain >= worthwhile
        )
        return winner, f"{winner or f'cannot tell, {enough}'}: {gain:.2f} ({low:.2f} to {high:.2f})"

    return conclusion


def _read(given, gains, worthwhile, *names):
    winner, sentence = given if isinstance(given, tuple) and len(given) == 2 else (0, 0)
    if not isinstance(winner, str | None) or not isinstance(sentence, str):
        raise Wrong(f"a pair of a name or None and a sentence is asked for, and this is {kind(given)}.")
    if (winner or "cannot tell") not in sentence.lower():
        raise Wrong(f"the sentence does not say {winner or 'cannot tell'!r}.")
    return given


def _alike(given, right):
    numbers, wanted = (set(re.findall(r"-?\d+(?:\.\d+)?", sentence)) for _, sentence in (given, right))
    return given[0] == right[0] and wanted <= numbers


conclusion = function_exercise(
    "ex20_1",
    "the winner for four lists of gains, and whether the sentence has the numbers",
    "`np.std` divides by the number of values, unless you give it `ddof=1`. The factor is `stats.t.ppf(0.975, n - 1)`.",
    "Make a function of `n` that returns the winner or None; only the half-width depends on `n`.",
    "Call it for `len(gains)`, and while it returns None for one more.",
    right=_conclusion(),
    cases=CASES,
    read=_read,
    alike=_alike,
    mistakes={
        "this takes 1.96; Student's factor is larger.": _conclusion(freedom=lambda n, had: np.inf),
        "the deviation of a sample divides by one less than its number.": _conclusion(ddof=0),
        "the rule also asks that the gain is at least `worthwhile`.": _conclusion(real=True),
        "the next test has degrees of freedom of its own.": _conclusion(freedom=lambda n, had: had - 1),
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
