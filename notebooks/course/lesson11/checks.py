"""Your data: what padding costs, and texts that are on both sides of a split."""

from functools import partial

from course.exercises import Quiz, Wrong, function_exercise, kind


def _padded(lengths, size, *, whole=lambda batch, lengths: len(batch) * max(batch), share=lambda n, all: 1 - n / all):
    """The share of padding; the options make it wrong, each as somebody does."""
    batches = [lengths[at : at + size] for at in range(0, len(lengths), size)]
    return share(sum(lengths), sum(whole(batch, lengths) for batch in batches))


def _mean_of_shares(lengths, size):
    batches = [lengths[at : at + size] for at in range(0, len(lengths), size)]
    return sum(_padded(batch, size) for batch in batches) / len(batches)


padded_share = function_exercise(
    "ex11_1",
    "the share for five lists of lengths, one of them without padding, some with a last batch that is not full",
    "A batch has as many places as its rows times the length of its longest row.",
    "`range(0, len(lengths), size)` gives the places where batches begin; a slice may end beyond the list.",
    "Add up the places of all batches. The share is 1 - sum(lengths) / places.",
    right=_padded,
    cases=(
        ("for rows of one length", [5, 5, 5, 5], 2),
        ("for one full batch", [2, 4, 6, 8], 4),
        ("for two batches", [10, 30, 100, 20], 2),
        ("for a last batch that is not full", [10, 20, 10, 20, 7], 2),
        ("for a batch that is larger than the data", [3, 9, 4], 8),
    ),
    mistakes={
        "every batch is padded to the longest row of all; only its own longest row counts.": partial(
            _padded, whole=lambda batch, lengths: len(batch) * max(lengths)
        ),
        "that is the number of padded places; divide it by the number of all places.": partial(
            _padded, share=lambda tokens, places: places - tokens
        ),
        "that is the share of real tokens; the share of padding is asked for.": partial(
            _padded, share=lambda tokens, places: tokens / places
        ),
        "that is padding for each real token; divide by all places instead.": partial(
            _padded, share=lambda tokens, places: places / tokens - 1
        ),
        "that is the mean of the batches' shares: small batches would count as much as large ones.": _mean_of_shares,
        "the last batch is not full, and it is counted as if it were.": lambda lengths, size: _padded(
            [*lengths, *[0] * (-len(lengths) % size)], size
        ),
        "the last batch is not full, and it is missing.": lambda lengths, size: (
            _padded(lengths[: len(lengths) // size * size], size) if len(lengths) >= size else 0
        ),
    },
)


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
        raise Wrong(f"a list of places is asked for, and this is {kind(given)}.")
    given = list(given)
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        raise Wrong("places are whole numbers, counted from 0, and there is something else in the list.")
    return sorted(given)


leaks = function_exercise(
    "ex11_2",
    "the list of places for five pairs of training and test texts",
    "Write a function that returns the set of all runs of n words of one text, as `runs` does in the lesson.",
    "Collect the runs of all training texts in one set. A test text leaks if it shares a run with that set: `a & b`.",
    "`seen = set().union(*(runs(text, n) for text in train))`, then `[at for at, text in enumerate(test) if ...]`.",
    right=_leaks,
    cases=(
        ("for a copy and two other texts", TRAIN, [TRAIN[1], "it is slow", "no idea what happened to my data"], 4),
        (
            "for a text that was sent again",
            TRAIN,
            ["nothing of that kind here", "Again: the Parser panics on an empty file, every time. Anybody?"],
            4,
        ),
        ("for texts that share words, but no run", TRAIN, ["on every file the empty parser panics with a flag"], 4),
        ("for a longer run", TRAIN, ["Build fails on Windows for me", "a build fails on Windows with a shrug"], 6),
        ("for a text of fewer than n words", TRAIN, ["add a flag", "please add a flag now"], 4),
    ),
    mistakes={
        "capitals count as other letters; a text that was sent again may begin otherwise.": partial(
            _leaks, words=str.split
        ),
        "only equal texts are found; a text that was changed a little leaks as well.": partial(_leaks, some=False),
        "these are places in the training texts; those in the test are asked for.": partial(_leaks, swapped=True),
        "the length of the runs is always 4; it is n that is asked for.": (
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
        "c": "The last label of each row in a batch.",
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
