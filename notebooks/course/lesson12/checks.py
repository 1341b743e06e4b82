"""A real model: the size of what is saved, how options are scored, and how many questions a test needs."""

import math
from collections.abc import Callable
from operator import eq
from statistics import fmean

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind, number_exercise

VALUES = 2_442_240  # of the lesson's adapter, rank 8
BYTES = 2 * 2 * VALUES  # of rank 16 in bf16
size_of_adapter = number_exercise(
    "ex12_1",
    "the megabytes of an adapter of rank 16 in bf16",
    "How does the number of parameters in A and B grow with the rank?",
    "A parameter takes 4 bytes in fp32 and 2 bytes in bf16.",
    right=BYTES / 1e6,
    mistakes={
        "that would be rank 8 in bf16, or rank 16 with one byte a parameter.": BYTES / 2e6,
        "that is rank 16 in fp32, with four bytes a value.": 2 * BYTES / 1e6,
        "these are bytes; megabytes are asked for.": BYTES,
        "these are MiB, of 1,048,576 bytes; a megabyte here is a million bytes.": BYTES / 2**20,
        "the number of parameters grows with the rank, not with its square.": 4 * BYTES / 1e6,
    },
)


CASES = (
    [[-1.0, -1.0], [-0.5, -0.6, -0.5, -0.4, -0.6]],
    [[-2.0], [-3.0, -0.1], [-1.6, -1.6, -1.6, -1.9]],
    [[-0.7, -0.9], [-0.1, -4.0, -0.1], [-0.9, -0.8], [-3.0]],
    [[-0.3, -0.3], [-0.4]],
)


def _highest(score) -> Callable:
    """A function that gives the place of the option with the highest score."""
    return lambda options: max(range(len(options)), key=lambda place: score(options[place]))


MISTAKES = {
    "the log-probabilities are added up, so a long option loses because it is long.": _highest(sum),
    "only the best token of each option decides.": _highest(max),
    "only the worst token of each option decides.": _highest(min),
    "only the first token of each option decides.": _highest(lambda option: option[0]),
    "the least likely option is chosen.": _highest(lambda option: -sum(option) / len(option)),
    "the places are counted from 1; count from 0.": lambda options: 1 + _highest(fmean)(options),
}


@exercise(
    "ex12_2",
    "the place that is returned for four sets of options of different lengths",
    "Adding up log-probabilities makes every further token a cost. Divide by something.",
    "`options.index` finds a list; you want the place of the highest mean.",
    mistakes=MISTAKES,
)
def choice(answer: object) -> None:
    """Judge a function that chooses an option by its mean log-probability per token."""
    places = []
    for options in CASES:
        place = called(answer, [list(option) for option in options])
        if isinstance(place, bool) or not hasattr(place, "__index__"):
            raise Wrong(f"a place, counted from 0, is asked for, and your function returns {kind(place)}.")
        places.append(int(place))
    results = ((why, [mistake(options) for options in CASES]) for why, mistake in MISTAKES.items())
    if places != [_highest(fmean)(options) for options in CASES]:
        otherwise = "another option than the one with the highest mean is chosen."
        raise Wrong(next((why for why, wrong in results if places == wrong), otherwise))


def _questions(difference, changed, z=1.96, powers=(1, 2)):
    return math.ceil(changed ** powers[0] * (z / difference) ** powers[1])


questions_needed = function_exercise(
    "ex12_3",
    "the number of questions for five differences and shares",
    "Solve 1.96 * sqrt(changed / n) <= difference for n.",
    "`math.ceil` gives the next whole number above.",
    right=_questions,
    cases=[
        (f"for a difference of {difference} and a share of {changed}", difference, changed)
        for difference, changed in ((0.05, 0.3), (0.1, 0.2), (0.02, 0.25), (0.01, 0.4), (0.5, 0.9))
    ],
    mistakes={
        "one question too few, because the result was rounded down.": lambda *case: _questions(*case) - 1,
        "a whole number of questions is asked for.": lambda difference, changed: changed * (1.96 / difference) ** 2,
        "the standard error falls with the square root of n, so n grows with the square.": lambda *case: _questions(
            *case, powers=(1, 1)
        ),
        "the root was taken twice: n grows with the square of what is under it.": lambda *case: _questions(
            *case, powers=(0.5, 1)
        ),
        "that is one standard error; 1.96 of them are asked for.": lambda *case: _questions(*case, z=1),
        "the share stands under the root, so it is not squared.": lambda *case: _questions(*case, powers=(2, 2)),
    },
    alike=eq,
)


QUIZ = Quiz(
    "quiz12",
    "After fine-tuning on passages about Rust, perplexity on held-out Rust passages is half of what it was. What "
    "does this show by itself?",
    {
        "a": "The model knows more about Rust than before.",
        "b": "The model predicts text of this kind better than before.",
        "c": "The model writes better answers about Rust than before.",
        "d": "The model has forgotten nothing.",
    },
    {
        "a": "Not by itself: style and vocabulary alone can halve perplexity. Questions about facts would show it.",
        "b": "Yes. That is what perplexity measures, and vocabulary and style are a large part of it.",
        "c": "Perplexity looks at text that somebody else wrote. To judge the model's own text, read it.",
        "d": "What is forgotten shows on other text, such as the general one, and in other questions.",
    },
    "b",
)
