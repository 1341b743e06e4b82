"""Scaling out: the first stage with which a model fits."""

from functools import partial
from operator import eq

from course.exercises import Quiz, Wrong, function_exercise, kind

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")


def _first(
    parameters, trained, cards, card, own, *, share=0.85, stages=STAGES, divided=lambda stage: range(stage), cut=1, **by
):
    """The first stage that fits; the options make it wrong, each as somebody does."""
    held = (8 * by.get("moved", trained), 4 * by.get("graded", trained), 4 * by.get("loaded", parameters))
    for name in stages:
        here = divided(STAGES.index(name))
        sizes = [size / cards if place in here else size for place, size in enumerate(held)]
        if sum(sizes) / 1e9 + own / cut <= share * card:
            return name
    return by.get("otherwise", "none")


def _with(**wrong):
    """A mistake; a function among its options is given the arguments."""
    return lambda *given: _first(*given, **{key: of(*given) for key, of in wrong.items()})


def _name(given, *sizes):
    if not isinstance(given, str) or given not in (*STAGES, "none"):
        raise Wrong(f"one of {', '.join(STAGES)} and none is asked for, and this is {kind(given)}.")
    return given


plan = function_exercise(
    "ex18_1",
    "the first stage that fits, for ten models and cards",
    "Write down three sizes: 8 bytes and 4 bytes for each trained parameter, and 4 for each parameter.",
    "Stage 1 divides the first size by the number of cards, stage 2 the first two, stage 3 all three.",
    "Go through the stages in order, and return the first with `sum(sizes) / 1e9 + own <= 0.85 * card`.",
    right=_first,
    cases=[
        (f"with {n / 1e9:g} billion parameters, {trained / 1e9:g} trained, {cards} x {card} GB and {own} own", n, *rest)
        for n, *rest in (
            (1.5e9, 1.5e9, 2, 30, 7),
            (1.5e9, 1.5e9, 2, 40, 19.5),
            (6.74e9, 6.74e9, 8, 80, 4),
            (6.74e9, 6.74e9, 8, 80, 12),
            (6.74e9, 6.74e9, 8, 40, 4),
            (6.74e9, 0.04e9, 8, 48, 5),
            (6.74e9, 0.04e9, 8, 24, 5),
            (6.74e9, 2e9, 4, 48, 4),
            (70e9, 70e9, 8, 80, 4),
            (6.74e9, 6.74e9, 1, 80, 1),
        )
        for trained, cards, card, own in [rest]
    ],
    mistakes={
        "15% of each card is left free.": partial(_first, share=1),
        "15% of the *card* is left free; this adds 15% to what is needed.": partial(_first, share=1 / 1.15),
        "a frozen parameter has no gradient and no averages.": _with(moved=lambda n, *_: n, graded=lambda n, *_: n),
        "a frozen parameter has no averages.": _with(moved=lambda n, *_: n),
        "a frozen parameter has no gradient.": _with(graded=lambda n, *_: n),
        "frozen weights take room as well.": _with(loaded=lambda n, trained, *_: trained),
        "what a card has for itself is there in full, however many there are.": _with(cut=lambda n, t, k, *_: k),
        "what a card has for itself is missing.": _with(cut=lambda *_: float("inf")),
        "stage 2 divides what stage 1 divides, and more.": partial(_first, divided=lambda stage: {stage - 1}),
        "the weights are divided last.": partial(_first, divided=lambda stage: range(3 - stage, 3)),
        "the *first* stage that fits sends least.": partial(_first, stages=STAGES[::-1]),
        "even ZeRO-3 does not fit here.": _with(otherwise=lambda *_: "ZeRO-3"),
    },
    read=_name,
    alike=eq,
)


QUIZ = Quiz(
    "quiz18",
    "LoRA on `llama2-7b`, with weights in fp32, needs 30 GiB, and each of your eight cards of 80 GB holds that. With "
    "DDP each process sends 0.14 GB a step.\nYou choose FSDP all the same. How many bytes does each process send now?",
    {
        "a": "about as many: frozen weights have no gradients, so nothing of them travels",
        "b": "about one and a half times as many",
        "c": "about an eighth: everything is divided among eight",
        "d": "more than three hundred times as many",
    },
    {
        "a": "no: this is true of DDP. With FSDP, a block's weights have to be gathered before it computes, whether "
        "they are frozen or not.",
        "b": "no: that holds if every value is trained. Then FSDP sends weights twice and gradients once, and DDP "
        "sends gradients twice. Here almost nothing has a gradient, but all weights have to be gathered.",
        "c": "no: an eighth is what each process *keeps*. What it does not keep has to come from the others.",
        "d": "yes: about 47 GB. A block computes with all of its weights, frozen or not, and they are gathered in both "
        "passes. LoRA sends little with DDP only. Use FSDP for what does not fit a card otherwise.",
    },
    right="d",
)
