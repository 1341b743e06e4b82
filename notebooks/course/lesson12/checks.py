"""A real model: how options are scored."""

from collections.abc import Callable
from statistics import fmean

from course.exercises import Quiz, Wrong, called, exercise, kind

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
    "ex12_1",
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
