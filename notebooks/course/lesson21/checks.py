"""Freezing: how many weights are trained, and how deep the lowest of them lies."""

from functools import partial
from numbers import Integral

from transformers import AutoConfig

from course.exercises import Quiz, Wrong, called, close, exercise, function_exercise, number_exercise
from tlkit.models import meta_model
from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy

TOTAL, TRAINED = 494_032_768, 315_084_160  # values of Qwen2-0.5B, and those above its lower half
LEFT = 100 * (4 * TOTAL + 12 * TRAINED) / (16 * TOTAL)
bytes_left = number_exercise(
    "ex21_1",
    "the share of those bytes that is left, in percent, to one percent",
    "A frozen value still has its own 4 bytes. What does it no longer need?",
    "4 bytes for each of the 494,032,768 values, and 12 more for each of the 315,084,160. Full has 16 for each.",
    right=LEFT,
    mistakes={
        "that is a share; percent are asked for.": LEFT / 100,
        "that is what is saved; what is left is asked for.": 100 - LEFT,
        "frozen values were taken to need nothing: their own 4 bytes stay, for the forward pass.": 100
        * TRAINED
        / TOTAL,
        "that is the share of frozen values; bytes are asked for.": 100 - 100 * TRAINED / TOTAL,
        "half the blocks are frozen, and yet not half the values: the embedding is trained.": 50,
        "that takes half the values for frozen. Half the blocks are not half the values.": 62.5,
        "that is in GB; percent of what full fine-tuning needs are asked for.": (4 * TOTAL + 12 * TRAINED) / 1e9,
        "the gradient is left out: a trained value has one, too.": 100 * (4 * TOTAL + 8 * TRAINED) / (16 * TOTAL),
        "a trained value's two averages are left out.": 100 * (4 * TOTAL + 4 * TRAINED) / (16 * TOTAL),
        "AdamW's two averages are left out.": 100 * (4 * TOTAL + 4 * TRAINED) / (8 * TOTAL),
        "the weights themselves are left out, the trained and the frozen ones.": 100 * 12 * TRAINED / (16 * TOTAL),
    },
    within=0.005,
)


def _share(trained, embedding, *, forward=1, above=0, own=1, way=None) -> float:
    """The share of a step's work; the options make it wrong, each as somebody does."""
    depth = len(trained)
    reached = sum(any(trained[: place + 1]) for place in range(depth))
    way = (depth if embedding else reached) if way is None else way(reached, depth, sum(trained))
    return (forward * depth + way - above + own * sum(trained)) / (3 * depth)


HALF = [True] * 4 + [False] * 4
share_of_work = function_exercise(
    "ex21_2",
    "the share of units that is left, for seven choices of what is trained",
    "Add three sums: forward in all blocks, gradients of inputs where backpropagation passes, gradients of weights.",
    "How far down does backpropagation go? To the bottom if the embedding is trained, else to the lowest trained one.",
    "With `lowest` for that block: (depth + (depth - lowest) + sum(trained)) / (3 * depth).",
    right=_share,
    cases=[
        ("with blocks 3 and 7 of 8 trained, nothing else", [False] * 3 + [True] + [False] * 3 + [True], False),
        ("with the lower half of 8 blocks frozen, the embedding trained", HALF[::-1], True),
        ("with the lower half of 8 blocks and the embedding frozen", HALF[::-1], False),
        ("with the upper half of 8 blocks and the embedding frozen", HALF, False),
        ("with everything trained", [True] * 8, True),
        ("with block 0 of 6 trained, nothing else", [True] + [False] * 5, False),
        ("with the embedding trained, under 6 frozen blocks", [False] * 6, True),
    ],
    mistakes={
        "that is in percent; a share between 0 and 1 is asked for.": lambda *step: 100 * _share(*step),
        "that is the number of units; their share of those of full fine-tuning is asked for.": lambda trained, *step: (
            3 * len(trained) * _share(trained, *step)
        ),
        "those are units per block; the share of those of full fine-tuning is asked for.": lambda *step: (
            3 * _share(*step)
        ),
        "that is what is saved; what is left is asked for.": lambda *step: 1 - _share(*step),
        "frozen blocks were taken to cost nothing. Each of them has its forward pass.": lambda trained, embedding: (
            sum(trained) / len(trained)
        ),
        "backpropagation stops at a block here, and something below it is trained.": partial(
            _share, way=lambda reached, depth, own: reached
        ),
        "backpropagation passes through frozen blocks, too, if something below them is trained.": partial(
            _share, way=lambda reached, depth, own: own
        ),
        "backpropagation goes on to the bottom here, and nothing there is trained.": partial(
            _share, way=lambda reached, depth, own: depth
        ),
        "the lowest trained block needs the gradient, too.": lambda trained, embedding: _share(
            trained, embedding, above=not embedding
        ),
        "the forward pass is left out.": partial(_share, forward=0),
        "the gradients of the blocks' own weights are left out.": partial(_share, own=0),
    },
    alike=lambda given, expected: close((given,), (expected,), within=1e-3),
)


@exercise(
    "ex21_3",
    "how far down backpropagation goes, for twelve models of three architectures",
    "Look at `requires_grad` of the parameters from below: the embedding first, then block after block.",
    "The embedding is `model.get_input_embeddings()`, whatever it is called; `find_blocks(model)` gives the blocks.",
    "A block is trained when *any* of its parameters is: any(p.requires_grad for p in block.parameters()).",
    'What does your function return where the loop over the blocks finds nothing? It should be "top".',
)
def gradient_ends(answer: object) -> None:
    """Judge a function that finds the lowest part of a model that the gradient has to reach."""
    for model, expected, story in _frozen_models():
        try:
            given = called(answer, model)
        except Wrong as wrong:
            raise type(wrong)(f"for {story}, {wrong}" if callable(answer) else str(wrong)) from wrong
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
        told = "nothing in that block is trained"
        if given > expected:
            told = "a block below has trained values: was all of it looked at?"
        raise Wrong(f"for {story} it says block {given}, and {told}")


def _frozen_models():
    """Models on paper, each with the lowest part that backpropagation reaches, and what was done to it."""
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
    "quiz21",
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
