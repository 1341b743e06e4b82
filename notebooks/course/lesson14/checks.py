"""Preferences: pairs in which length says nothing."""

from course.exercises import Quiz, Wrong, called, exercise, kind

CASES = (
    (
        "the longer answer wins twice and loses once",
        [("a", "b b b", "c"), ("d", "e", "f f"), ("g", "h h", "i")],
        [0, 1],
    ),
    ("it wins once and loses twice", [("a", "b", "c c"), ("d", "e", "f f f"), ("g", "h h", "i")], [0, 2]),
    ("two pairs have answers of equal length", [("a", "b b", "c c"), ("d", "e e", "f"), ("g", "h", "i")], [0, 2]),
    ("the longer one by words has fewer letters", [("a", "b b", "cccccc"), ("d", "e", "f f")], [0, 1]),
    ("nothing has to go", [("a", "b b", "c"), ("d", "e", "f f")], [0, 1]),
    ("there are no pairs", [], []),
)


@exercise(
    "ex14_1",
    "the pairs that are left of six small sets, one of them empty, and their order",
    "Count how often the chosen answer has more words and how often it has fewer. The smaller count is how many of "
    "each kind may stay.",
    "Go through the pairs once and keep one counter for each kind; a pair stays as long as the counter of its kind is "
    "below the limit. Pairs of equal length always stay.",
    "`sign = (n > m) - (n < m)` is 1, -1 or 0 for lengths `n` and `m`; the limit is `min(signs.count(1), "
    "signs.count(-1))`.",
)
def balanced_pairs(answer: object) -> None:
    """Judge a function that drops pairs until length says nothing."""
    for story, pairs, places in CASES:
        given = called(answer, list(pairs))
        if not isinstance(given, list):
            raise Wrong(f"where {story}: expected a list, and this is {kind(given)}.")
        wanted = [pairs[place] for place in places]
        if given == wanted:
            continue
        if any(pair not in pairs for pair in given):
            raise Wrong(f"where {story}: there is something in the list that is none of the pairs.")
        if sorted(given) == sorted(wanted):
            raise Wrong(f"where {story}: these are the right pairs in another order.")
        lengths = [(len(chosen.split()), len(rejected.split())) for _, chosen, rejected in given]
        more, fewer = sum(n > m for n, m in lengths), sum(n < m for n, m in lengths)
        if more != fewer:
            raise Wrong(f"where {story}: the longer answer wins {more} times and loses {fewer} times.")
        if len(given) < len(wanted):
            raise Wrong(f"where {story}: {len(wanted)} pairs can stay, and {len(given)} are left.")
        raise Wrong(f"where {story}: the last pairs of a kind go, and the first ones stay.")


QUIZ = Quiz(
    "quiz14",
    "A run of DPO logs a falling loss, a reward accuracy of 0.98 and margins that grow. What do you do next?",
    {
        "a": "Use the model: all three numbers are good.",
        "b": "Train longer, because the margins still grow.",
        "c": "Let it write, count what was wanted and what was not, and measure perplexity on other text.",
        "d": "Raise the learning rate.",
    },
    {
        "a": "no: the damaged run of this lesson had such numbers, too.",
        "b": "no: a margin also grows when both answers become less likely, and the damaged run has the widest one.",
        "c": "yes: the numbers compare two given answers, and only its own text shows what the model writes.",
        "d": "no: nothing here asks for a higher rate, and too high a rate gives such numbers as well.",
    },
    right="c",
)
