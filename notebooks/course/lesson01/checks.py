"""The weights: the parameters that did not come from a file."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind


@exercise(
    "ex01_1",
    "the names that it returns for four pairs of a small model and a file",
    "`file.keys()` says which names are in the file, and `weights.equal(other)` says whether all values are the same.",
    "Go through `model.named_parameters()`. A name is reported if it is not in `file.keys()`, or if not equal.",
)
def not_from_file(answer: object) -> None:
    """Judge a function that names the parameters a file lacks or holds other values of."""
    first = "1.weight"
    pairs = [
        ({}, "where every tensor came from the file", ""),
        (
            {first: lambda tensor: tensor + 1},
            "where one tensor has other values in the file",
            "a tensor of the same name and shape need not have the same values.",
        ),
        (
            {first: lambda tensor: tensor.flip(0)},
            "where one tensor has the same values in the file, in another order",
            "sums and shapes can agree where the tensors do not.",
        ),
        (
            {"2.bias": lambda _: None, "0.weight": _one_value_moved},
            "where the file lacks one tensor, and has a single other value in a second one",
            "missing is one fault, and a single value is enough for another.",
        ),
    ]
    for changes, story, overlooked in pairs:
        model = _small_model()
        saved = {name: changes.get(name, torch.clone)(weights.detach()) for name, weights in model.named_parameters()}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            kept = {name: tensor.half().contiguous() for name, tensor in saved.items() if tensor is not None}
            save_file(kept, path, metadata={"format": "pt"})
            try:
                given = _names(called(answer, model, path))
            except Wrong as wrong:
                if wrong.__cause__ is None:
                    raise
                raise Wrong(f"{story}, {wrong}") from wrong
        every, expected = set(saved), set(changes)
        if given == expected:
            continue
        if given == every - expected:
            raise Wrong(f"{story}, it returns the names of those that did come from it; the others are asked for.")
        if given - every:
            raise Wrong(f"{story}, it returns {min(given - every)!r:.40}, and no parameter has that name.")
        if given < expected:
            raise Wrong(f"{story}, it returns {len(given)} names of {len(expected)}: {overlooked}")
        raise Wrong(f"{story}, it also returns {min(given - expected)!r}, which is what the file says.")


def _small_model():
    """A few tensors whose values 16 bits can hold exactly."""
    model = nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 3), nn.LayerNorm(3))
    with torch.no_grad():
        for place, weights in enumerate(model.parameters()):
            weights.copy_(torch.arange(weights.numel()).view_as(weights) / 8 + place)
    return model


def _one_value_moved(tensor):
    moved = tensor.clone()
    moved.view(-1)[0] += 0.5
    return moved


def _names(answer: object) -> set[str]:
    if isinstance(answer, str) or not isinstance(answer, list | tuple | set | frozenset):
        raise Wrong(f"a list of names is asked for, and this is {kind(answer)}.")
    for name in answer:
        if not isinstance(name, str):
            raise Wrong(f"names are asked for, and one of them is a {type(name).__name__}.")
    return set(answer)


QUIZ = Quiz(
    "quiz01",
    "`torch.cuda.is_available()` returns True. What do you know?",
    {
        "a": "Training will run on the GPU.",
        "b": "The GPU has room for the model.",
        "c": "PyTorch was built for CUDA and its driver reports a GPU. Nothing has been computed on it.",
        "d": "Models that are loaded from now on lie on the GPU.",
    },
    {
        "a": "not yet: a card that is listed can fail at its first product, say because this build of PyTorch has no "
        "code for it. That is why the lesson computes one.",
        "b": "it says nothing about memory, and another program may hold most of it.",
        "c": "yes. A small product on the device is a cheap proof that it also computes.",
        "d": "no: a model lies where it was loaded to, and in PyTorch that is the CPU until something moves it.",
    },
    right="c",
)
