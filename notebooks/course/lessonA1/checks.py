"""Unfreezing schedules: when a block joins, a strategy of one's own, and what a schedule saves."""

from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind, number_exercise
from course.small import small_model

first_step_of_a_block = number_exercise(
    "exA1_1",
    "the step in which block 12 of 30 is trained for the first time",
    "The parts are counted from the top. If part 1 is block 29, which part is block 12?",
    "Block 12 is part 18. Its phase is floor(18 * 4 / 32), because there are 32 parts, from 0 to 31.",
    "Phase g begins with step floor(g * 200 / 4).",
    right=100,
    mistakes={
        "that is the number of its phase, counted from 0; the step is asked for.": 2,
        "that is the number of its phase, counted from 1; the step is asked for.": 3,
        "block 12 would be counted from the bottom; part 0 is at the top.": 50,
        "steps are counted from 0 here.": 101,
        "the phases begin together for all of their parts: round down before you multiply by the steps.": 112,
        "that is the beginning of the last phase, to which the embedding belongs.": 150,
        "in the first phase only the highest quarter of the parts is trained.": 0,
    },
    within=0,
)


@exercise(
    "exA1_2",
    "what trains and what does not, tensor by tensor, in models of 4, 5 and 12 blocks, of Qwen2, Llama and GPT-2",
    "`tl.find_blocks(model)` is the list of blocks, the first one next to the embedding.",
    "The upper half of `blocks` begins at `len(blocks) // 2`. What is the last block of five in the lower half?",
    "`block.mlp.requires_grad_(True)` for each block of the upper half; then return the model.",
)
def upper_mlps(answer: object) -> None:
    """Judge a strategy that trains the MLPs of the upper half of the blocks, and nothing else."""
    for architecture, depth in (("qwen2", 4), ("llama", 5), ("gpt2", 12)):
        model = small_model(architecture, depth=depth).requires_grad_(False)
        given = called(answer, model)
        story = f"for a {architecture} of {depth} blocks"
        if not isinstance(given, nn.Module):
            raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
        found = {name for name, tensor in given.named_parameters() if tensor.requires_grad}
        wanted = {
            name
            for name, _ in model.named_parameters()
            if ".mlp." in name and _block_of(name) is not None and _block_of(name) >= depth // 2
        }
        if found == wanted:
            continue
        if not found:
            raise Wrong(f"{story}: nothing is trained.")
        _tell_the_difference(found, wanted, story, depth)


def _block_of(name: str) -> int | None:
    """The number of the block that a tensor is in."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _tell_the_difference(found: set[str], wanted: set[str], story: str, depth: int) -> None:
    outside = sorted(name for name in found - wanted if _block_of(name) is None)
    if outside:
        raise Wrong(f"{story}: {outside[0]} is trained, which is in no block.")
    below = sorted(name for name in found - wanted if _block_of(name) < depth // 2)
    if below and not found & wanted:
        raise Wrong(f"{story}: the lower half of the blocks is trained; block 0 is next to the embedding.")
    if below:
        raise Wrong(f"{story}: block {_block_of(below[0])} is in the lower half, and {below[0]} is trained.")
    if others := sorted(found - wanted):
        raise Wrong(f"{story}: {others[0]} is trained, and it is no part of an MLP.")
    missing = sorted(wanted - found)
    raise Wrong(f"{story}: {missing[0]} is in the upper half and stays frozen.")


remaining_arithmetic = number_exercise(
    "exA1_3",
    "the percentage of the arithmetic that remains, give or take half a percent",
    "Say that the forward pass of a block costs 1. Then a trained block costs 3, and a frozen one behind the cache 0.",
    "In the four phases, 1/4, 2/4, 3/4 and 4/4 of the blocks are trained.",
    "Without any freezing every block costs 3 in every phase. What is the average of 1/4, 2/4, 3/4 and 4/4?",
    right=62.5,
    mistakes={
        "that is without the cache: frozen blocks cost nothing in the forward pass, either.": 75,
        "that is what is saved; what remains is asked for.": 37.5,
        "that is what is saved without the cache; with it, more is saved, and what remains is asked for.": 25,
        "write it in percent.": 0.625,
        "the last phase trains all blocks: its share is 4/4, and the average of the four is not a half.": 50,
        "only the last phase needs as much as full fine-tuning.": 100,
    },
    within=0.008,
)


QUIZ = Quiz(
    "quizA1",
    "You unfreeze a block after 100 steps by setting `requires_grad` to true, but its weights never change. The losses "
    "and gradients look normal. What is the most likely reason?",
    {
        "a": "The warm-up of the learning rate is over by then.",
        "b": "The optimizer was made before, from the parameters that were trainable at that time.",
        "c": "A block that was frozen once is left out of the backward pass for good.",
        "d": "AdamW's averages of this block are still zero, so its first steps are zero, too.",
    },
    {
        "a": "no: after the warm-up the rate is at its highest.",
        "b": "yes: gradients arrive, but no optimizer holds these weights, so nothing ever uses them.",
        "c": "no: autograd asks for `requires_grad` anew in every forward pass.",
        "d": "no: AdamW corrects its averages for having begun at zero, so its first step is as long as any other.",
    },
    right="b",
)
