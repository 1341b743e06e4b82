"""The autopsy: a program that audits reports."""

from course.exercises import Quiz, Wrong, called, exercise

SOUND = {
    "vocabulary": 49_152,
    "first_loss": 3.2,
    "baseline": 27.1,
    "parameters": 162_826_560,
    "parts": [7_080_192, 576],
    "trained": 7_080_768,
    "tokens": 4_000,
    "seeds": 3,
    "seconds": 0.04,
    "fixed": 0.03,
    "bandwidth": 288e9,
}
COMPLAINTS = {  # what is said if one is missing, and if one is too many
    "loading": (
        "the first loss and the baseline are both as bad as guessing: weights or labels are wrong",
        "a model with random weights would be as bad in its first training step, and this one was not",
    ),
    "evaluation": (
        "a loss is the logarithm of a perplexity, and they may differ in either direction",
        "a loss is in nats and a perplexity is not, so they cannot be compared directly",
    ),
    "count": ("the parts have another sum, and one parameter is enough", "the parts add up"),
    "sample": ("tokens and seeds both have to be enough", "1,000 tokens and 3 seeds are enough here"),
    "speed": (
        "more than twice, or less than half: a step that is too short was not timed to its end",
        "a step moves 8 bytes for each parameter and 88 more for each trained one: divide by bandwidth, add `fixed`",
    ),
}


@exercise(
    "ex16_1",
    "the new report, two sound ones, and others with one fault or several; three have published figures",
    "Each complaint is a comparison of two numbers. The loss is the logarithm of a perplexity: use one scale.",
    "Let P be all parameters and T the trained ones. A step should take (8P + 88T) / bandwidth + fixed.",
    'Start with `found = set()`, and add a word where its comparison fails. `"evaluation"` is in an `elif` '
    'behind `"loading"`.',
)
def audits(answer: object) -> None:
    """Judge a function that names what is wrong in a report."""
    published = {"vocabulary": 151_936, "parameters": 494_032_768, "baseline": 254_801.06}
    published |= {"tokens": 32, "seeds": 1, "fixed": 0.1}
    for story, wanted, changes in (
        ("the new report", {"sample", "speed"}, {"tokens": 512, "seeds": 1, "seconds": 0.3}),
        ("a sound report with just enough text", set(), {"tokens": 1_000}),
        ("a report with 2 seeds", {"sample"}, {"seeds": 2}),
        ("a sound report with a step of 0.07 s", set(), {"seconds": 0.07}),
        ("a report with a step of 0.08 s", {"speed"}, {"seconds": 0.08}),
        ("a report with a step of 0.01 s", {"speed"}, {"seconds": 0.01}),
        ("a report with a forgotten norm", {"count"}, {"trained": 7_080_192}),
        ("random weights, just at guessing", {"loading"}, {"first_loss": 10.8, "baseline": 49_152.0}),
        ("an evaluation that shows each token before it is guessed", {"evaluation"}, {"baseline": 1.3}),
        ("symptom 2", {"loading"}, {"vocabulary": 151_936, "first_loss": 11.4, "baseline": 387_789.0}),
        ("the Python report's full fine-tuning", {"evaluation", "sample", "speed"},
         published | {"first_loss": 4.6157, "parts": [494_032_768], "trained": 494_032_768, "seconds": 254.28 / 140}),
        ("the Python report's adapter layers", {"evaluation", "count", "sample"},
         published | {"first_loss": 4.11, "parts": [29_824_768, 136_134_656], "trained": 29_865_088, "seconds": 0.127}),
        ("the Rust report", {"loading", "count", "sample"},
         published | {"parameters": 630_167_424, "first_loss": 12.55, "baseline": 387_788.94, "parts": [630_167_424],
                      "trained": 291, "tokens": 4, "seconds": 0.1}),
    ):  # fmt: skip
        given = called(answer, SOUND | changes)
        if not isinstance(given, set | frozenset | list | tuple) or not set(map(str, given)) <= set(COMPLAINTS):
            raise Wrong(f"your function returns {given!r:.60}: expected a set of {', '.join(map(repr, COMPLAINTS))}.")
        for word, (missing, too_many) in COMPLAINTS.items():
            if (word in given) != (word in wanted):
                raise Wrong(
                    f"for {story}, {word!r} is missing: {missing}."
                    if word in wanted
                    else f"for {story}, {word!r} is said: {too_many}."
                )


QUIZ = Quiz(
    "quiz16",
    "Symptom 5 ends with a hypothesis: three runs did not fit the card.\nWhich experiment could show that it is false?",
    {
        "a": "Run full fine-tuning and adapter layers again, on a card with 24 GB.",
        "b": "Run all four strategies again on the same card, with five seeds.",
        "c": "Train all four ten times as long.",
        "d": "Count the arithmetic once more, with norms and optimizer.",
    },
    {
        "a": "yes: everything fits this card. If the ratio stays near 14, memory was not the cause. If it falls to "
        "about 2, as traffic and fixed costs predict, the hypothesis has passed a test that it could have failed.",
        "b": "no: five seeds show how much 14.3 varies. Whatever slowed the three runs would slow these as well.",
        "c": "no: all times become ten times as long, and their ratios stay the same, whatever the cause is.",
        "d": "no: arithmetic takes 4 of 1,816 milliseconds, however exact it is. The cause stays unknown.",
    },
    right="a",
)
