"""Freezing: how many weights are trained, and how deep the lowest of them lies."""

import math
from numbers import Integral

from course.exercises import Quiz, Wrong, called, exercise, near, number


@exercise(
    "ex05_1",
    1,
    "the share of those bytes that is left, in percent, to one percent",
    "A frozen value still has its own 4 bytes. What does it no longer need?",
    "4 bytes for each of the 494,032,768 values, and 12 more for each of the 315,084,160. Full has 16 for each.",
)
def bytes_left(answer: object) -> None:
    """Judge the percentage of bytes that is left when the lower half is frozen."""
    from tlkit.models import meta_model
    from tlkit.strategies import apply_strategy

    report = apply_strategy(meta_model("qwen2-0.5b"), "freeze_lower")
    trained, total = report.trainable_values, report.total_values
    share = (4 * total + 12 * trained) / (16 * total)
    for value, why in (
        (share, "that is a share; percent are asked for."),
        (100 - 100 * share, "that is what is saved; what is left is asked for."),
        (
            100 * trained / total,
            "frozen values were taken to need nothing: their own 4 bytes stay, for the forward pass.",
        ),
        (100 - 100 * trained / total, "that is the share of frozen values; bytes are asked for."),
        (50, "half the blocks are frozen, and yet not half the values: the embedding is trained."),
        (62.5, "that takes half the values for frozen. Half the blocks are not half the values."),
        (4 * total / 1e9 + 12 * trained / 1e9, "that is in GB; percent of what full fine-tuning needs are asked for."),
        (100 * (4 * total + 8 * trained) / (16 * total), "the gradient is left out: a trained value has one, too."),
        (100 * (4 * total + 4 * trained) / (16 * total), "a trained value's two averages are left out."),
        (100 * (4 * total + 4 * trained) / (8 * total), "AdamW's two averages are left out."),
        (100 * 12 * trained / (16 * total), "the weights themselves are left out, the trained and the frozen ones."),
    ):
        if near(answer, value, within=0.002):
            raise Wrong(why)
    if not near(answer, 100 * share):
        raise Wrong(f"{number(answer):.4g} is not it.")


@exercise(
    "ex05_2",
    2,
    "the share of units that is left, for seven choices of what is trained",
    "Add three sums: forward in all blocks, gradients of inputs where backpropagation passes, gradients of weights.",
    "How far down does backpropagation go? To the bottom if the embedding is trained, else to the lowest trained one.",
    "With `lowest` for that block: (depth + (depth - lowest) + sum(trained)) / (3 * depth).",
)
def share_of_work(answer: object) -> None:
    """Judge a function for the share of a step's work that is left, block by block."""
    half = [True] * 4 + [False] * 4
    cases = [
        ([False] * 3 + [True] + [False] * 3 + [True], False, "blocks 3 and 7 of 8 trained, nothing else"),
        (half[::-1], True, "the lower half of 8 blocks frozen, the embedding trained"),
        (half[::-1], False, "the lower half of 8 blocks and the embedding frozen"),
        (half, False, "the upper half of 8 blocks and the embedding frozen"),
        ([True] * 8, True, "everything trained"),
        ([True] + [False] * 5, False, "block 0 of 6 trained, nothing else"),
        ([False] * 6, True, "the embedding trained, under 6 frozen blocks"),
    ]
    for trained, embedding, story in cases:
        given = number(_called(f"with {story}", answer, list(trained), embedding))
        depth, own = len(trained), sum(trained)
        walked = [any(trained[: place + 1]) for place in range(depth)]
        to_a_block, way = sum(walked), depth if embedding else sum(walked)
        right, units = depth + way + own, 3 * depth
        if math.isclose(given, right / units, abs_tol=1e-3):
            continue
        for value, why in (
            (100 * right / units, "that is in percent; a share between 0 and 1 is asked for."),
            (right, "that is the number of units; their share of those of full fine-tuning is asked for."),
            (right / depth, "those are units per block; the share of those of full fine-tuning is asked for."),
            (1 - right / units, "that is what is saved; what is left is asked for."),
            (3 * own / units, "frozen blocks were taken to cost nothing. Each of them has its forward pass."),
            (
                (depth + to_a_block + own) / units,
                "backpropagation stops at a block here, and something below it is trained.",
            ),
            (
                (depth + 2 * own) / units,
                "backpropagation passes through frozen blocks, too, if something below them is trained.",
            ),
            (
                (depth + depth + own) / units,
                "backpropagation goes on to the bottom here, and nothing there is trained.",
            ),
            ((depth + way - (not embedding) + own) / units, "the lowest trained block needs the gradient, too."),
            ((way + own) / units, "the forward pass is left out."),
            ((depth + way) / units, "the gradients of the blocks' own weights are left out."),
        ):
            if math.isclose(given, value, abs_tol=1e-3):
                raise Wrong(f"with {story}, it gives {given:.4g}: {why}")
        raise Wrong(f"with {story}, it gives {given:.4g}.")


@exercise(
    "ex05_3",
    3,
    "how far down backpropagation goes, for twelve models of three architectures",
    "Look at `requires_grad` of the parameters from below: the embedding first, then block after block.",
    "The embedding is `model.get_input_embeddings()`, whatever it is called; `find_blocks(model)` gives the blocks.",
    "A block is trained when *any* of its parameters is: any(p.requires_grad for p in block.parameters()).",
    'What does your function return where the loop over the blocks finds nothing? It should be "top".',
)
def gradient_ends(answer: object) -> None:
    """Judge a function that finds the lowest part of a model that the gradient has to reach."""
    for model, expected, story in _frozen_models():
        given = _called(f"for {story}", answer, model)
        place = isinstance(given, Integral) and not isinstance(given, bool)
        if (place or isinstance(given, str)) and given == expected:
            continue
        if not place and not (isinstance(given, str) and given in ("embedding", "top")):
            raise Wrong(f'for {story} it gives {given!r:.40}; expected "embedding", the number of a block, or "top".')
        if expected == "embedding":
            raise Wrong(f"for {story} it says {given!r}, and the embedding lies below that and is trained.")
        if given == "embedding":
            raise Wrong(f"for {story} it says the embedding, which is frozen here.")
        if expected == "top":
            raise Wrong(f'for {story} it says block {given}. No block is trained here, so "top" is asked for.')
        if given == "top":
            raise Wrong(f'for {story} it says "top", and a block below is trained.')
        if given > expected:
            raise Wrong(
                f"for {story} it says block {given}. A block below has trained values: was all of it looked at?"
            )
        raise Wrong(f"for {story} it says block {given}, and nothing in that block is trained.")


def _called(story: str, function: object, *arguments) -> object:
    """As `called`, and says for what the function broke or returned nothing."""
    try:
        return called(function, *arguments)
    except Wrong as wrong:
        raise type(wrong)(f"{story}, {wrong}" if callable(function) else str(wrong)) from wrong


def _frozen_models():
    """Models on paper, each with the lowest part that backpropagation reaches, and what was done to it."""
    from transformers import AutoConfig

    from tlkit.models import meta_model
    from tlkit.models.parts import find_blocks
    from tlkit.strategies import apply_strategy

    other = AutoConfig.for_model("gpt2", n_layer=12, n_embd=32, n_head=2)
    cases = [
        ("tiny", "full", {}, "embedding", "a model with everything trained"),
        ("tiny", "freeze_lower", {}, "embedding", "the lesson's model, lower half frozen"),
        ("tiny", "freeze_lower", {"freeze_embeddings": True}, 4, "the same model, embedding frozen as well"),
        (other, "freeze_lower", {"freeze_embeddings": True}, 6, "a GPT-2, lower half and embedding frozen"),
        (other, "full", {}, "embedding", "a GPT-2 with everything trained"),
        ("qwen2-0.5b", "last_layers", {"train_norms": False, "blocks": 5}, 19, "the upper 5 of 24 blocks trained"),
        ("qwen2-0.5b", "last_layers", {}, 0, "the published run: the last 2 blocks and all norms trained"),
        ("tiny", "bitfit", {}, 0, "a model of which only bias vectors are trained"),
        ("tiny", "last_layers", {"train_norms": False, "train_head": True}, "embedding", "last blocks and tied head"),
    ]
    for source, strategy, options, expected, story in cases:
        yield (apply_strategy(meta_model(source), strategy, **options).model, expected, story)
    model = meta_model("tiny")
    model.requires_grad_(False)
    find_blocks(model)[3].requires_grad_(True)
    yield model, 3, "a model of which only one block, in the middle, is trained"
    model.requires_grad_(False)
    model.model.norm.requires_grad_(True)
    yield model, "top", "a model of which only the final norm is trained"
    model = meta_model("tinyllama-1.1b")
    model.requires_grad_(False)
    model.get_output_embeddings().requires_grad_(True)
    yield (model, "top", "a Llama of which only the head, a matrix of its own, is trained")


QUIZ = Quiz(
    "quiz05",
    "Of a model with 24 blocks you train block 0 and nothing else. How does a step compare with one in which only "
    "block 23 is trained?",
    {
        "a": "It is the same: one block is trained in both.",
        "b": "It is cheaper: the forward pass can stop behind block 0.",
        "c": "It needs more memory for the optimizer, and the same time.",
        "d": "It needs as much memory for the optimizer, but a longer backward pass and more kept activations.",
    },
    {
        "a": "for the optimizer it is. But the loss is at the top, and block 0 is at the bottom.",
        "b": "no: without the blocks above it there is no prediction, and without a prediction no loss.",
        "c": "the optimizer keeps its averages for trained values only, and blocks are of equal size. As for the time: "
        "where does backpropagation start?",
        "d": "yes: backpropagation passes through 23 frozen blocks, and each has to keep activations for it.",
    },
    right="d",
)
TASKS = (bytes_left, share_of_work, gradient_ends, QUIZ)
