"""QLoRA: what a weight in four bits takes, and rounding to levels of each block."""

from functools import partial

import torch

from course.exercises import Quiz, function_exercise, number_exercise
from course.small import close_tensors, tensor

# The codes, an 8-bit scale for 64 weights, and a 32-bit one for 256 of those scales.
BITS = 4 + 8 / 64 + 32 / (64 * 256)
bits_of_a_weight = number_exercise(
    "ex06_1",
    "the bits of one weight, with its share of what the block keeps, to one percent",
    "Every weight has its own four bits. Scale and smallest weight are shared: how much of them falls to one weight?",
    "32 weights take 32 * 4 bits, their scale 16 more, their smallest weight 16 more. Divide the sum by 32.",
    right=4 + 32 / 32,
    mistakes={
        "one number of 16 bits for each block is missing: it keeps a scale *and* its smallest weight.": 4 + 16 / 32,
        "that is NF4 with double quantisation; here nothing that a block keeps is quantised again.": BITS,
        "that is the code alone: without its block's numbers a weight cannot be read.": 4,
        "that gives every weight numbers of its own; 32 weights share them.": 4 + 32,
        "that gives every weight a scale of its own; 32 weights share it.": 4 + 16,
        "that is one weight's share of what the block keeps; the weight's own bits come to it.": 32 / 32,
        "these are bytes; bits are asked for.": (4 + 32 / 32) / 8,
        "these are the bits of the whole block; those of one weight are asked for.": 32 * 4 + 32,
    },
)


def _even(part, steps, low=None, high=None, whole=torch.round):
    """The nearest of evenly spaced levels; where all values are equal, these."""
    low, high = part.min() if low is None else low, part.max() if high is None else high
    return (low + (high - low) / steps * whole((part - low) * steps / (high - low))).where(high > low, part)


def _each(way):
    """Block by block, in as many steps as there are gaps."""
    return lambda weights, bits, block: torch.cat([way(part, 2**bits - 1) for part in weights.split(block)])


def _tensors():
    normal = torch.randn(256, generator=torch.Generator().manual_seed(0))
    apart = normal.view(4, 64) * torch.tensor([[1.0], [100.0], [0.01], [5.0]])
    return [
        ("for one block of four weights in 2 bits", torch.tensor([0.1, 0.5, -0.3, 1.9]), 2, 4),
        ("for four blocks in 4 bits", normal, 4, 64),
        ("for four blocks of very different size", apart.flatten(), 4, 64),
        ("for weights that are all far above zero", normal.abs() + 3, 4, 64),
        ("for blocks of 32 in 3 bits", normal, 3, 32),
        ("for a last block that is shorter", normal[:100], 4, 64),
        ("for a block in which all weights are equal", torch.cat([normal[:64], torch.full((64,), 0.25)]), 4, 64),
    ]


quantiser = function_exercise(
    "ex06_2",
    "weights that were rounded between the ends of their block and read again, for seven tensors",
    "Take one block at a time: weights.split(block) gives them all, the shorter one too. torch.cat joins the results.",
    "2**bits levels have 2**bits - 1 gaps between them. From the smallest weight to the largest, how wide is one?",
    "With low = part.min() and gap = (part.max() - low) / (2**bits - 1), the code is ((part - low) / gap).round(); "
    "what is read again is low + gap * code. Where all weights are equal, gap is 0: give them back.",
    right=_each(_even),
    cases=_tensors,
    mistakes={
        "nothing was rounded: these are the weights as they were.": lambda weights, *_: weights,
        "one range was taken for all blocks; each has its own.": lambda weights, bits, block: _even(
            weights, 2**bits - 1
        ),
        "these are 2**bits gaps, so one level too many: codes of so few bits cannot tell them apart.": _each(
            lambda part, steps: _even(part, steps + 1)
        ),
        "this takes the level below; the nearest one is asked for.": _each(partial(_even, whole=torch.floor)),
        "the smallest weight of the block was taken off, and not added again.": _each(
            lambda part, steps: _even(part, steps) - part.min()
        ),
        "these are levels from 0 to 1: the range of the block is missing.": _each(
            lambda part, steps: (_even(part, steps) - part.min()) / (part.max() - part.min())
        ),
        "these are codes, not the weights that they stand for.": _each(
            lambda part, steps: ((part - part.min()) / (part.max() - part.min()) * steps).round()
        ),
        "the levels go from minus to plus the largest *absolute* value; here they begin at the smallest weight.": (
            _each(lambda part, steps: _even(part, steps, -part.abs().max(), part.abs().max()))
        ),
        "there is nan in what comes back: where all weights are equal, the gap is 0, and you divide by it.": _each(
            lambda part, steps: _even(part, steps) + 0 / (part.max() - part.min())
        ),
    },
    read=lambda given, weights, *_: tensor(given, weights),
    alike=close_tensors,
    keeps=True,
)


QUIZ = Quiz(
    "quiz06",
    "LoRA trains a 0.5B model on your card in 16 bits, with memory to spare. What would QLoRA change?",
    {
        "a": "Steps get faster: a quarter of the bytes has to be read.",
        "b": "The same steps need less memory, at no price.",
        "c": "Steps get slower and weights coarser, for memory that you do not need.",
        "d": "The adapters get 4 bits too, and a quarter of the size on disk.",
    },
    {
        "a": "no: 4-bit weights cannot be multiplied as they are. Each layer is unpacked first, in the forward pass "
        "and again in the backward pass.",
        "b": "no: it needs less memory, but unpacking takes time, and rounded weights start from a higher perplexity.",
        "c": "yes: QLoRA buys memory with time and a little accuracy. It pays where 16 bits do not fit.",
        "d": "no: only the frozen weights are packed. The adapters beside them are trained, and saved, as with LoRA.",
    },
    right="c",
)
