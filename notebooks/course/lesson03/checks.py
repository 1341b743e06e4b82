"""The baseline: an interval from documents."""

import math
import random

import torch

from course.exercises import Quiz, Wrong, called, exercise, near, numbers


@exercise(
    "ex03_1",
    "the interval of three sets of documents, within what another draw may change, and of a single document",
    "One draw: as many documents as there are, each taken from all of them, so that some come twice and others not.",
    "`random.choices(documents, k=len(documents))` is one draw. Its bits: all its nats divided by `math.log(2)`. "
    "Divide them by all its bytes, `len(text.encode())` for each text.",
    "Do that 1000 times and sort the results: 2.5% lie below the low end, 2.5% above the high end.",
)
def interval_over_documents(answer: object) -> None:
    """Judge a function for a 95% interval of the bits per byte, by resampling documents."""
    low, high = numbers(called(answer, [("né" * 15, [3.0, 1.0, 2.0, 6.0] * 5)]), 2)
    bits = 60 / math.log(2)
    if low < high:
        raise Wrong("for a single document there is an interval: were tokens drawn? It cannot be drawn otherwise.")
    if not near(low, bits / 45) or not near(high, bits / 45):
        said = {"nats were not turned into bits": 60 / 45, "characters were counted, and é has two bytes": bits / 30}
        said |= {"it is divided by tokens": bits / 20, "perplexity is not asked for": math.exp(3)}
        why = next((why for why, value in said.items() if near(low, value)), "that is not it")
        raise Wrong(f"for a single document of {bits:.1f} bits and 45 bytes it gives {low:.4g} and {high:.4g}: {why}.")
    widths = []
    for seed in range(3):
        documents = _documents(seed)
        low, high = numbers(called(answer, [(text, list(losses)) for text, losses in documents]), 2)
        if low > high:
            raise Wrong("the low end is above the high end: are they in each other's place?")
        right = _interval(documents)
        if low <= 0:
            raise Wrong(f"bits per byte are positive, and the low end is {low:.4g}.")
        width, middle = math.log(right[1] / right[0]), math.log(right[0] * right[1]) / 2
        widths.append(math.log(high / low) / width)
        _name_the_mistake(right, low, high, widths[-1], (math.log(high * low) / 2 - middle) / width)
    if not 0.9 < sum(widths) / 3 < 1.1:
        too = "narrow" if sum(widths) < 3 else "wide"
        apart = abs(sum(widths) / 3 - 1)
        raise Wrong(f"the intervals are too {too}, by {apart:.0%}: which share of draws is left out?")


def _name_the_mistake(right: tuple[float, float], low: float, high: float, width: float, shift: float) -> None:
    """Raise Wrong, with its likely cause, for an interval that is elsewhere than another draw would have it."""
    if near(low, high, within=1e-6):
        raise Wrong("the interval has no width: every draw has the same documents. Some must be able to come twice.")
    if 0.75 < width < 1.25 and abs(shift) < 0.2:
        return
    if width < 0.6:
        raise Wrong("the interval is too narrow. Tokens of one document are correlated: were they drawn one by one?")
    if width > 3:
        raise Wrong("the interval is far too wide: it says how documents differ, not how their common score would.")
    if abs(shift) >= 0.2 * max(1, width):
        where = "high" if shift > 0 else "low"
        raise Wrong(f"the interval lies too {where}: does every *byte* of a draw count the same, long text or short?")
    raise Wrong(f"the interval has {width:.1f} times the width that it should have: which share of draws is left out?")


def _documents(seed: int) -> list[tuple[str, list[float]]]:
    """Texts and losses of 30 documents that differ in kind: the short ones are the hard ones."""
    chance, documents = random.Random(seed), []
    for _ in range(30):
        level = chance.gauss(4.0, 0.8)
        length = max(5, round(90 - 45 * (level - 4.0) + chance.gauss(0, 5)))
        documents.append(("né" * length, [abs(chance.gauss(level, 0.8)) for _ in range(length)]))
    return documents


def _interval(documents: list[tuple[str, list[float]]]) -> tuple[float, float]:
    bits = torch.tensor([sum(losses) for _, losses in documents], dtype=torch.float64) / math.log(2)
    size = torch.tensor([len(text.encode()) for text, _ in documents], dtype=torch.float64)
    draws = torch.randint(len(documents), (8000, len(documents)), generator=torch.Generator().manual_seed(1))
    shares = bits[draws].sum(1) / size[draws].sum(1)
    return tuple(torch.quantile(shares, torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist())


QUIZ = Quiz(
    "quiz03",
    "A colleague checks that no test passage is equal to a training passage, and finds none. But one test passage "
    "stands in the training text with one comma left out. What follows?",
    {
        "a": "The check missed a near copy, so the score of this passage is partly memory.",
        "b": "Without the comma it is another text for the model, so nothing has leaked.",
        "c": "The interval of the test score becomes wider, and this reveals the copy.",
        "d": "Only the training loss is too good; the test score is not affected.",
    },
    {
        "a": "yes. A search for runs of words that two splits share, like the one in the lesson, would have found it.",
        "b": "no: all other tokens stand in the same order, and they can be learned by heart.",
        "c": "no: the interval says what other documents would change. It knows nothing of the training text.",
        "d": "the other way round: a low loss on training text is what training is for. It is the test score "
        "that claims to be about unseen text.",
    },
    right="a",
)
