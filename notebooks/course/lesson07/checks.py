"""Freezing: how to train the last blocks of any model and nothing else, and what that saves."""

from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, function_exercise, kind
from course.small import small_model


@exercise(
    "ex07_1",
    "what trains and what does not, tensor by tensor, in a Qwen2, in a Llama with its own head, and in a GPT-2",
    "Freeze everything first. `find_blocks(model)` is the list of blocks, whatever its name is.",
    "The final norm is a child of `model.get_decoder()`. Which of its children have vectors alone, and no matrix?",
    "`child.requires_grad_(True)` makes the norm trainable, and the same call works for each of the last blocks.",
)
def exactly_the_last(answer: object) -> None:
    """Judge a function that trains the last blocks and the final norm, and nothing else."""
    for where, blocks, start, norm in (
        ("Qwen2", 2, "model.layers.", "model.norm."),
        ("Llama", 1, "model.layers.", "model.norm."),
        ("GPT-2", 3, "transformer.h.", "transformer.ln_f."),
    ):
        model = small_model(where.lower().replace("-", ""), depth=12, tied=where != "Llama")
        given = called(answer, model, blocks)
        if not isinstance(given, nn.Module) or not hasattr(given, "get_decoder"):
            raise Wrong(f"the model is to be returned, and this is {kind(given)}.")
        if all(tensor.requires_grad for tensor in given.parameters()):
            raise Wrong(f"in a {where} everything trains, as it did when the model came.")
        right = (norm, *(f"{start}{n}." for n in range(12 - blocks, 12)))
        for name, tensor in given.named_parameters():
            if tensor.requires_grad != name.startswith(right):
                found = "trains" if tensor.requires_grad else "does not train"
                more = ", as in the published run" if found == "trains" and name.startswith(start) else ""
                raise Wrong(f"in a {where} {name} {found}{more}.")


def _left(n, k, N, H, stored, below=2, head=4):
    return ((n - k) * N * below * (not stored) + 6 * k * N + head * H) / (6 * n * N + 6 * H)


share_left = function_exercise(
    "ex07_2",
    "the share that is left, without a store and with one",
    "For a token, a product takes 2 operations a weight. How many products does each part need?",
    "A full step takes `6 * (n * N + H)`. A frozen head hands the gradient down: `4 * H`. What does a store save?",
    right=_left,
    cases=[("without a store", 8, 2, 405_504, 786_432, False), ("with a store", 24, 6, 14_909_440, 136_134_656, True)],
    mistakes={
        "the head is frozen: it saves one product.": lambda *shape: _left(*shape, head=6),
        "the trained blocks need the gradient that comes through the head.": lambda *shape: _left(*shape, head=2),
        "nothing below the trained blocks needs a gradient.": lambda *shape: _left(*shape, below=4),
        "the frozen blocks still run forwards.": lambda *shape: _left(*shape, below=0),
        "what is stored need not be computed again.": lambda *shape: _left(*shape[:4], False),
    },
)


QUIZ = Quiz(
    "quiz07",
    "Of a model's 24 blocks you train block 0 alone. How does a step compare with one that trains block 23 alone?",
    {
        "a": "It is the same: one block is trained in both.",
        "b": "It is cheaper: the forward pass can stop after block 0.",
        "c": "It needs more memory for the optimizer, and the same time.",
        "d": "It needs as much memory for the optimizer, but a longer backward pass and more kept activations.",
    },
    {
        "a": "for the optimizer it is. But the loss is at the top, and block 0 is at the bottom.",
        "b": "no: without the blocks above it there is no prediction, and without a prediction no loss.",
        "c": "blocks are of equal size, and so are the optimizer's averages. Where does backpropagation start?",
        "d": "yes: backpropagation passes through 23 frozen blocks, and each has to keep activations for it.",
    },
    right="d",
)
