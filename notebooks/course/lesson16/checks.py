"""The autopsy: how many blocks a ranking takes, names that match too much, three figures that must fit together."""

import math

from course.exercises import Quiz, Wrong, called, exercise, number_exercise
from tlkit.models import meta_model

LIMIT = (1.96 * 0.14 / 0.02) ** 2
enough_blocks = number_exercise(
    "ex16_1",
    "the smallest number of blocks for which the interval excludes zero",
    "The interval excludes zero as soon as 1.96 * 0.14 / √n is smaller than 0.02. Which n is that?",
    "Solve this for the square root of n, and square the result. Then round up to a whole number of blocks.",
    right=math.ceil(LIMIT),
    mistakes={
        "there is no part of a block: a whole number is asked for.": LIMIT,
        "with that many, the interval still holds zero, though barely: round up.": math.floor(LIMIT),
        "that is more than needed: the interval reaches 1.96 times the standard error to *each* side.": 753,
        "that looks like tokens; blocks are asked for.": math.ceil(LIMIT) * 32,
        "that is the root of it: twice the blocks do not halve the interval, four times as many do.": 14,
        "there the mean is as large as its own standard error; the interval reaches 1.96 times as far.": 49,
        "that takes 2 for 1.96, which is close, and a few blocks too many.": 197,
    },
    within=1e-4,
)


@exercise(
    "ex16_2",
    "every name of Qwen2-0.5B, as it is and as peft would have it, for the first 1, 2, 9, 12 and 24 blocks",
    "Find the number of the block in the name, the whole of it, and compare it as a number.",
    'The number stands between dots: `re.search(r"layers\\.(\\d+)\\.", name)` finds it, and finds nothing (None) in '
    "names that belong to no block.",
    "`int(found[1]) < count`, where something was found.",
)
def first_blocks(answer: object) -> None:
    """Judge a function that says, from its name, whether a tensor is in the first blocks."""
    called(answer, "model.layers.7.mlp.up_proj.weight", 1)
    names = [name for name, _ in meta_model("qwen2-0.5b").named_parameters()]
    for count in (12, 2, 1, 9, 24):
        for front in ("", "base_model.model."):
            _judge_selection(answer, names, front, count)


@exercise(
    "ex16_3",
    "the diagnosis of seven models, sound and not; one has published figures",
    "The loss is the logarithm of a perplexity. Bring both numbers to one scale before you compare them.",
    "A model with random weights knows nothing in training either. How large is the loss of its first training step?",
    "Check first whether the two numbers agree within one nat, in both directions. Only if they agree does the size of "
    "the vocabulary tell you something about the model.",
)
def diagnosis(answer: object) -> None:
    """Judge a function that tells a sound start from a faulty evaluation or faulty loading."""
    cases = [
        ("sound", 4.9, 138.0, 4096, "nothing was wrong"),
        ("sound", 3.0, 40.0, 50_257, "nothing was wrong"),
        ("loading", 12.6, 250_072.0, 151_936, "the weights were random"),
        ("evaluation", 4.6157, 254_801.06, 151_936, "labels were shifted twice in the evaluation"),
        ("evaluation", 4.4, 9_000.0, 151_936, "labels were shifted twice in the evaluation"),
        ("evaluation", 4.6, 1.3, 4096, "the evaluation showed the model each token that it was to guess"),
        ("loading", 8.9, 5_100.0, 4096, "the weights were random"),
    ]
    for right, loss, baseline, vocabulary, story in cases:
        given = called(answer, loss, baseline, vocabulary)
        if not isinstance(given, str) or given not in ("sound", "evaluation", "loading"):
            raise Wrong(f'your function returns {given!r:.40}: expected "sound", "evaluation" or "loading".')
        if given == right:
            continue
        case = f"where {story}, your function says {given!r}:"
        if right == "sound":
            why = "a loss is in nats and a perplexity is not, so the two cannot be compared directly."
        elif right == "loading":
            why = "a baseline above the vocabulary, and training that starts as badly, is a model that knows nothing."
        elif given == "loading":
            why = "random weights would be as bad in their first training step, and these were not."
        elif baseline < vocabulary and baseline > math.exp(loss):
            why = "a baseline below the vocabulary may still be far from what training says."
        else:
            why = "a baseline far better than training is as suspicious as one far worse."
        raise Wrong(f"{case} {why}")


def _judge_selection(answer, names, front, count):
    case = f"asked for the first {count} blocks, your function"
    wanted, taken = {}, {}
    for name in names:
        parts = name.split(".")
        wanted[name] = int(parts[2]) if parts[1] == "layers" else None
        try:
            given = called(answer, front + name, count)
        except Wrong as wrong:
            raise type(wrong)(f"for the name {front}{name}, {wrong}") from wrong
        if given not in (True, False):
            raise Wrong(f"True or False is asked for, and your function returns {given!r:.40}.")
        taken[name] = bool(given)
    blocks = {at for at in wanted.values() if at is not None}
    chosen = {at for name, at in wanted.items() if taken[name]}
    partly = {at for name, at in wanted.items() if not taken[name] and at in chosen}
    if None in chosen:
        raise Wrong(f"{case} also takes what is in no block: embedding or final norm.")
    if partly:
        raise Wrong(f"{case} takes block {min(partly)} in part: a block is all its tensors, norms and biases too.")
    if chosen == set(range(count)):
        return
    if front and not chosen:
        raise Wrong(f"{case} takes none where the name has more in front, as peft makes it.")
    if chosen == {at for at in blocks if any(str(at).startswith(str(first)) for first in range(count))}:
        raise Wrong(f"{case} takes {len(chosen)}: a number was looked for that is also the beginning of others.")
    if chosen == {at for at in blocks if str(at) < str(count)}:
        raise Wrong(f"{case} compares numbers as text, where '10' comes before '9'.")
    if chosen in (set(range(count + 1)) & blocks, set(range(1, count + 1)) & blocks):
        raise Wrong(f"{case} is off by one: blocks count from 0, and the first {count} do not include block {count}.")
    if chosen == blocks - set(range(count)):
        raise Wrong(f"{case} takes all the others.")
    raise Wrong(f"{case} takes {len(chosen)} of {len(blocks)}, and not the right ones.")


QUIZ = Quiz(
    "quiz16",
    "Symptom 6 ends with a hypothesis: full fine-tuning was slowed down because it did not fit the card.\n"
    "Which experiment could show that it is false?",
    {
        "a": "Run both strategies again, on a card with 24 GB.",
        "b": "Run both again on the same card, with five seeds.",
        "c": "Train both ten times as long, on the same card.",
        "d": "Count the arithmetic once more, with norms and optimizer.",
    },
    {
        "a": "yes: everything fits this card. If the ratio stays near 14, memory was not the cause. If it falls to "
        "what arithmetic and memory traffic explain, the hypothesis has passed a test that it could have failed.",
        "b": "no: five seeds show how much 14.3 varies. Whatever slowed the first run would slow these five as well.",
        "c": "no: both times become ten times as long, and their ratio stays the same, whatever the cause is.",
        "d": "no: this makes the expected ratio more exact, but it is far from 14.3 anyway. The cause stays unknown.",
    },
    right="a",
)
