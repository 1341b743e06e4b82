"""Your data: texts that are on both sides of a split."""

from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, kind


def _leaks(train, test, n=4, *, words=lambda text: text.lower().split(), swapped=False, some=True):
    def runs(text):
        found = words(text)
        return {tuple(found[at : at + n]) for at in range(len(found) - n + 1)}

    if swapped:
        train, test = test, train
    seen = set().union(*map(runs, train)) if some else set(train)
    return [at for at, text in enumerate(test) if (runs(text) & seen if some else text in seen)]


TRAIN = [
    "The parser panics on an empty file, every time.",
    "Build fails on Windows with a linker error",
    "please add a flag for quiet output",
]


def _places(given, *arguments):
    if isinstance(given, str | dict) or not hasattr(given, "__iter__"):
        raise Wrong(f"a list of positions is asked for, and this is {kind(given)}.")
    given = list(given)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        raise Wrong("positions are whole numbers, counted from 0, and there is something else in the list.")
    return sorted(given)


leaks = function_exercise(
    "ex11_1",
    "the list of positions for five pairs of training and test texts",
    "Write a function that returns the set of all n-grams of one text, as `ngrams` does in the lesson.",
    "Collect the n-grams of all training texts in one set. A test text leaks if it shares one with that set: `a & b`.",
    "`seen = set().union(*(ngrams(text, n) for text in train))`, then `[at for at, text in enumerate(test) if ...]`.",
    right=_leaks,
    cases=(
        ("for a copy and two other texts", TRAIN, [TRAIN[1], "it is slow", "no idea what happened to my data"], 4),
        (
            "for a text that was sent again",
            TRAIN,
            ["nothing of that kind here", "Again: the Parser panics on an empty file, every time. Anybody?"],
            4,
        ),
        ("for texts that share words, but no n-gram", TRAIN, ["on every file the empty parser panics with a flag"], 4),
        ("for a longer n-gram", TRAIN, ["Build fails on Windows for me", "a build fails on Windows with a shrug"], 6),
        ("for a text of fewer than n words", TRAIN, ["add a flag", "please add a flag now"], 4),
    ),
    mistakes={
        "capitals count as other letters; a text that was sent again may begin otherwise.": partial(
            _leaks, words=str.split
        ),
        "only equal texts are found; a text that was changed a little leaks as well.": partial(_leaks, some=False),
        "these are positions in the training texts; those in the test are asked for.": partial(_leaks, swapped=True),
        "the length of the n-grams is always 4; it is n that is asked for.": (
            lambda train, test, n: _leaks(train, test, 4)
        ),
        "texts that share words are in the list, though no n of them stand in the same order.": (
            lambda train, test, n: _leaks(train, test, 1)
        ),
        "those that do not leak are in the list.": lambda train, test, n: [
            at for at in range(len(test)) if at not in _leaks(train, test, n)
        ],
    },
    read=_places,
    alike=lambda given, expected: given == expected,
)


QUIZ = Quiz(
    "quiz11",
    "A tuned model writes a good answer, but then goes on with another one, until the limit. Its training loss was "
    "low. Which of these would have shown the reason before training?",
    {
        "a": "The loss on validation text.",
        "b": "The number of rows after cleaning.",
        "c": "The last label of each row that is not -100.",
        "d": "The share of padding in the batches.",
    },
    {
        "a": "no: there the end tokens are masked as well, so this loss is low, too.",
        "b": "no: the rows are all there; their last label is missing.",
        "c": "yes: it is the last token of the text and not the end token, so the model never learns to stop.",
        "d": "no: padding costs time and teaches nothing, as long as its labels are -100.",
    },
    right="c",
)
