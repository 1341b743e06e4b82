"""Instruction tuning: which tokens have a label."""

from course.exercises import Quiz, Wrong, called, exercise, kind


@exercise(
    "ex14_1",
    "the labels of four rows, one of them without padding, one whose padding token is its end token",
    "Three parts follow one another: only read, learned, padding. Which places belong to the middle one?",
    "The learned tokens are those from place `only_read` up to, but not including, place `length`.",
    "`[-100] * only_read + tokens[only_read:length] + [-100] * (len(tokens) - length)`.",
)
def labels_of_a_row(answer: object) -> None:
    """Judge a function that makes labels by place, and not by token."""
    cases = (
        ("a question of 3 tokens, an answer of 2 and its end, no padding", [5, 6, 7, 8, 9, 0], 3, 6),
        ("the same with three places of padding by the end token", [5, 6, 7, 8, 9, 0, 0, 0, 0], 3, 6),
        ("an answer that is one token and its end", [5, 6, 7, 0, 1, 1], 2, 4),
        ("a question in which the token of the end occurs", [5, 0, 7, 8, 0, 0, 0], 3, 5),
    )
    for story, tokens, only_read, length in cases:
        given = called(answer, list(tokens), only_read, length)
        if not isinstance(given, list):
            raise Wrong(f"{story}: expected a list, and this is {kind(given)}.")
        wanted = [-100] * only_read + tokens[only_read:length] + [-100] * (len(tokens) - length)
        if given == wanted:
            continue
        if len(given) != len(tokens):
            raise Wrong(f"{story}: expected {len(tokens)} labels, one for each token, and these are {len(given)}.")
        if given[length - 1] == -100:
            raise Wrong(f"{story}: the end token of the answer has no label, so the model would never learn to stop.")
        if any(label != -100 for label in given[length:]):
            raise Wrong(f"{story}: padding has labels, so the model would learn to write it.")
        if any(label != -100 for label in given[:only_read]):
            raise Wrong(f"{story}: the question has labels; it is only read.")
        if all(label == -100 for label in given):
            raise Wrong(f"{story}: no token has a label.")
        if given[only_read : length - 1] == tokens[only_read + 1 : length]:
            raise Wrong(f"{story}: the labels are shifted by one; the model shifts them itself.")
        raise Wrong(f"{story}: the labels are {given}; expected each learned token's own id at its own place.")


QUIZ = Quiz(
    "quiz14",
    "A fine-tuned chat model writes a good answer, but then goes on with a question of its own, answers that, and so "
    "on until the limit. The training loss was low. What is the most likely reason?",
    {
        "a": "The learning rate was too high.",
        "b": "The end token of the answers carried no label.",
        "c": "The model was trained for too few epochs.",
        "d": "The answers in the training data are too long.",
    },
    {
        "a": "no: then the loss would have been high, or training would have diverged.",
        "b": "yes: it has learned what an answer says, and never that one ends.",
        "c": "no: the answers are good, so enough was learned; only where they end was not.",
        "d": "no: a long answer ends, too, if its end has a label.",
    },
    right="b",
)
