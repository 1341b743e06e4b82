"""Freezing: what a recipe trains beside the blocks it names, how to train no more, and how to untie a head."""

import torch
from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind, number_exercise
from course.small import small_model
from tlkit.strategies import apply_strategy

BLOCKS, WIDTH = 22, 2048  # of TinyLlama
norms_of_a_llama = number_exercise(
    "ex07_1",
    "the number of parameters in TinyLlama's norms outside the last two blocks",
    "How many norm vectors are in blocks that stay frozen otherwise? The two trained blocks have theirs already.",
    "20 blocks with two norms each, and one norm after the last block. Each norm has as many parameters as the width.",
    right=(2 * (BLOCKS - 2) + 1) * WIDTH,
    mistakes={
        "that is the number of vectors. Parameters are asked for, and each vector has many.": 2 * (BLOCKS - 2) + 1,
        "that counts the norms of the last two blocks, too.": (2 * BLOCKS + 1) * WIDTH,
        "that counts the norms of the last two blocks, too, and misses the one after them.": 2 * BLOCKS * WIDTH,
        "one norm is missing: it belongs to no block.": 2 * (BLOCKS - 2) * WIDTH,
        "a block has more than one norm.": (BLOCKS - 2 + 1) * WIDTH,
        "that is the number of Qwen2-0.5B; TinyLlama has another depth and another width.": 45 * 896,
        "that is all that is trained; what lies outside the last two blocks is asked for.": 88_172_544,
    },
    within=0,
)


@exercise(
    "ex07_2",
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


@exercise(
    "ex07_3",
    "a small tied model before and after: its logits, its two tables, training of the head alone, and `tie_weights()`",
    "The head needs a second table with the same numbers, in memory of its own. Which method copies a tensor?",
    "`nn.Parameter(table.detach().clone())` is such a table. `detach()` alone is a second name for the same memory.",
    "`model.config.tie_word_embeddings` tells `tie_weights()` what to do: set it to False.",
)
def a_head_of_its_own(answer: object) -> None:
    """Judge a function that unties a head from the embedding, so that it stays untied."""
    model = small_model(weights=True).eval()
    tokens = torch.arange(24).reshape(2, 12)
    with torch.no_grad():
        expected = model(input_ids=tokens).logits
    given = called(answer, model)
    if not isinstance(given, nn.Module) or not hasattr(given, "get_output_embeddings"):
        raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
    if given.get_output_embeddings().weight is given.get_input_embeddings().weight:
        raise Wrong("head and embedding are still one tensor.")
    with torch.no_grad():
        logits = given.eval()(input_ids=tokens).logits
    if logits.shape != expected.shape or not torch.allclose(logits, expected, atol=1e-5):
        raise Wrong("the model scores tokens differently now; before training it should say what it said before.")
    apply_strategy(given, "freeze_embeddings")
    embedding, head = (given.get_input_embeddings().weight, given.get_output_embeddings().weight)
    if not head.requires_grad:
        raise Wrong("with the embedding frozen, the head does not train.")
    frozen = embedding.detach().clone()
    with torch.no_grad():
        head.add_(1.0)  # what a training step does, only larger
    if not embedding.equal(frozen):
        raise Wrong(
            "training the head moves the frozen embedding. There are two parameters now, and one memory behind both."
        )
    given.tie_weights()
    if given.get_output_embeddings().weight is given.get_input_embeddings().weight:
        raise Wrong("after `tie_weights()` both are one tensor again: the model still believes that it is a tied one.")


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
