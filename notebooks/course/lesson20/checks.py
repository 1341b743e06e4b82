"""A project of one's own: which rates were not tuned."""

from course.exercises import Quiz, Wrong, called, exercise

SOUND = {"full": [(1e-4, 90), (1e-3, 80), (1e-2, 95)], "lora": [(1e-3, 99), (1e-2, 85), (1e-1, 300)]}
HIGHEST, LOWEST = [(1e-4, 120), (1e-3, 99), (1e-2, 85)], [(1e-4, 70), (1e-3, 80), (1e-2, 95)]
CASES = (  # rates of each strategy with their scores, who is not tuned, and why
    (SOUND, set(), "everything was done rightly"),
    (SOUND | {"lora": HIGHEST}, {"lora"}, "the best rate of lora is the highest of those tried"),
    (SOUND | {"full": LOWEST}, {"full"}, "the best rate of full is the lowest of those tried"),
    (SOUND | {"full": [*SOUND["full"], (2e-3, 82)]}, {"lora"}, "lora had three runs and full had four"),
    (
        {"full": SOUND["full"][2:] + SOUND["full"][:2], "lora": SOUND["lora"][::-1], "ia3": [(1e-1, 90)]},
        {"ia3"},
        "ia3 had one run, and the rates come in no order",
    ),
)


@exercise(
    "ex20_1",
    "the strategies that your function names, for seven searches, sound and not",
    "Go through the strategies one by one, and collect the runs of each. There are three ways to fail, and any one of "
    "them is enough.",
    'The split: `any(split != "validation" ...)`. The budget: `len(runs) < most`, where `most` is the number of '
    "runs that the strategy with the most had.",
    "The edge: find the run with the lowest score. Its rate must be neither the lowest nor the highest that was tried.",
)
def not_tuned(answer: object) -> None:
    """Judge a function that names the strategies whose rate was not found fairly."""
    searches = [(_trials(searched), bad, story) for searched, bad, story in CASES]
    first = CASES[0][0]
    on_test = [(name, rate, "test" if name == "full" else split, score) for name, rate, split, score in _trials(first)]
    searches.append((on_test, {"full"}, "full was tuned on the test split"))
    one_of_them = [(*run[:2], "test", run[3]) if place == 1 else run for place, run in enumerate(_trials(first))]
    searches.append((one_of_them, {"full"}, "one run of full, of three, was scored on the test split"))
    for trials, bad, story in searches:
        given = called(answer, list(trials))
        if isinstance(given, str | bytes) or not isinstance(given, set | frozenset | list | tuple):
            raise Wrong(f"a set of names is asked for, and your function returns {given!r:.40}.")
        if not all(isinstance(name, str) for name in given):
            raise Wrong(f"a set of names is asked for, and your function returns {given!r:.40}.")
        if set(given) == bad:
            continue
        more, less = sorted(set(given) - bad), sorted(bad - set(given))
        if less:
            raise Wrong(f"{story}, and your function does not name {less[0]}.")
        raise Wrong(f"{story}, and your function also names {more[0]}.")


def _trials(searched: dict[str, list[tuple[float, float]]]) -> list[tuple[str, float, str, float]]:
    return [(name, rate, "validation", score) for name, runs in searched.items() for rate, score in runs]


QUIZ = Quiz(
    "quiz20",
    "Your study has an interval from -9% to +3% for `lora` against `full`, and your plan calls 5% worthwhile.\n"
    "What do you write?",
    {
        "a": "There is no difference between the two.",
        "b": "`lora` is better by 3%, the middle of the interval.",
        "c": "This study cannot tell; `lora` may be better by up to 9% or worse by up to 3%.",
        "d": "Nothing yet: I check which documents are hard for `lora` and leave them out.",
    },
    {
        "a": "no: the interval reaches to -9%, beyond what you call worthwhile. You have not found a difference, which "
        "is not the same as having shown that there is none.",
        "b": "no: zero is in the interval, so a difference of this size is what chance alone explains.",
        "c": "yes. It says what is known, and a reader can see how much more text would decide it.",
        "d": "no: that is to choose by the test split, and any result can be made in this way.",
    },
    right="c",
)
