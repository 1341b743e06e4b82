"""Freezing: how to train the last blocks of any model, and nothing else."""

from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind
from course.small import small_model


@exercise(
    "ex07_1",
    "what trains and what does not, tensor by tensor, in a Qwen2, in a Llama with its own head, and in a GPT-2",
    "Freeze everything first. `find_blocks(model)` is the list of blocks, whatever its name is.",
    "`model.get_decoder()` holds embedding, blocks and final norm; `named_children()` lists what is directly in it. "
    "What do the classes of all norms have in their names?",
    'The final norm is the child of the decoder with "Norm" in `type(child).__name__`. '
    "`child.requires_grad_(True)` makes it trainable, and the same call works for each of the last blocks.",
)
def exactly_the_last(answer: object) -> None:
    """Judge a function that trains the last blocks and the final norm, and nothing else."""
    places = {  # as people call it; start of the blocks' names, and of the final norm's
        "qwen2": ("Qwen2", "model.layers", "model.norm."),
        "llama": ("Llama", "model.layers", "model.norm."),
        "gpt2": ("GPT-2", "transformer.h", "transformer.ln_f."),
    }
    for architecture, blocks in (("qwen2", 2), ("llama", 1), ("gpt2", 3)):
        called_so, *names = places[architecture]
        model = small_model(architecture, depth=12, tied=architecture != "llama")
        given = called(answer, model, blocks)
        if not isinstance(given, nn.Module) or not hasattr(given, "get_decoder"):
            raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
        _only_last_trains(f"in a {called_so}", dict(given.named_parameters()), blocks, *names)


def _only_last_trains(where: str, tensors: dict, blocks: int, start: str, final_norm: str) -> None:
    trains = {name for name, tensor in tensors.items() if tensor.requires_grad}
    norm = {name for name in tensors if name.startswith(final_norm)}
    last, lower = (
        {name for name in tensors if name.startswith(tuple(f"{start}.{n}." for n in numbers))}
        for numbers in (range(12 - blocks, 12), range(12 - blocks))
    )
    if trains == set(tensors):
        raise Wrong(f"{where} everything trains, as it did when the model came.")
    if last - trains:
        raise Wrong(f"{where} {len(last - trains)} tensors of the last blocks do not train: {min(last - trains)}.")
    if trains & lower and lower - trains:
        raise Wrong(f"{where} something trains in lower blocks, as in the published run: {min(trains & lower)}.")
    if trains & lower:
        raise Wrong(f"{where} all the lower blocks train as well.")
    if norm - trains:
        raise Wrong(f"{where} the final norm does not train. It is no part of a block.")
    if trains - last - norm:
        raise Wrong(f"{where} this trains as well: {min(trains - last - norm)}.")


QUIZ = Quiz(
    "quiz07",
    "Of a model with 24 blocks you train block 0 and nothing else. How does a step compare with one in which only "
    "block 23 is trained?",
    {
        "a": "It is the same: one block is trained in both.",
        "b": "It is cheaper: the forward pass can stop after block 0.",
        "c": "It needs more memory for the optimizer, and the same time.",
        "d": "It needs as much memory for the optimizer, but a longer backward pass and more kept activations.",
    },
    {
        "a": "for the optimizer it is. But the loss is at the top, and block 0 is at the bottom.",
        "b": "no: without the blocks above it there is no prediction, and without a prediction no loss.",
        "c": "the optimizer keeps its averages for trained parameters only, and blocks are of equal size. As for time: "
        "where does backpropagation start?",
        "d": "yes: backpropagation passes through 23 frozen blocks, and each has to keep activations for it.",
    },
    right="d",
)
