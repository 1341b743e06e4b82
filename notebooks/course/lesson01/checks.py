"""The machine and the weights: what a perplexity above the vocabulary says, and a load that cannot fail silently."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from course.exercises import Quiz, Wrong, called, exercise, kind, number, number_exercise

VOCABULARY, BASELINE = 151_936, 387_789
FACTOR = BASELINE / VOCABULARY
worse_than_a_die = number_exercise(
    "ex01_1",
    "the factor between two average probabilities, to one percent",
    "What is the perplexity of uniform guessing with this vocabulary? The lesson says it before its first score.",
    "The two probabilities are 1 / 151936 and 1 / 387789. Divide the larger one by the smaller one.",
    right=FACTOR,
    mistakes={
        "that is the factor the other way round: uniform guessing is the better one here.": 1 / FACTOR,
        "that is the difference of two perplexities; a factor is asked for.": BASELINE - VOCABULARY,
        "that is in percent; a plain factor is asked for.": 100 * FACTOR,
        "that is by how much it is more, not by what factor.": FACTOR - 1,
        "that is by how many percent it is more, not by what factor.": 100 * (FACTOR - 1),
        "that is the factor of the other run, the one that reported 250,072.": 250_072 / VOCABULARY,
        "4,096 is the vocabulary of the bundled model; this run's model has another.": BASELINE / 4096,
        "that is the model's own average probability. Now compare it with uniform guessing.": 1 / BASELINE,
        "that is the probability of uniform guessing. Now compare it with the model's.": 1 / VOCABULARY,
        "that is the perplexity of uniform guessing. Now compare the two probabilities.": VOCABULARY,
    },
)


@exercise(
    "ex01_2",
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


@exercise(
    "ex01_3",
    "what it fills and returns when all fits, and whether it refuses four loads in which something does not",
    "When is `all(name in saved for name in variables)` true? Think of a list without any variable in it.",
    "Compare both ways: names without a partner are in `variables.keys() ^ saved.keys()`. Then compare shapes.",
    "Check first and raise. Only then `variables[name].copy_(saved[name])`, which fills in place; return the count.",
)
def strict_load(answer: object) -> None:
    """Judge a loader that fills every variable in place, or refuses with a ValueError."""

    def weights(value, *names):
        return {name: torch.full((3, 4), value) for name in names}

    variables, saved = weights(0.0, "a", "b"), weights(1.0, "a", "b")
    held = list(variables.values())
    story = "when every variable has its partner in the file"
    try:
        count = called(answer, variables, saved)
    except Wrong as wrong:
        if isinstance(wrong.__cause__, ValueError):
            raise Wrong(f"{story}, it refuses: {wrong.__cause__}") from wrong
        raise
    if not all(tensor.eq(1).all() for tensor in held):
        if all(tensor.eq(1).all() for tensor in variables.values()):
            raise Wrong(
                f"{story}, the dictionary holds new tensors, and the model still has its old ones. Fill in place."
            )
        raise Wrong(f"{story}, the variables do not have the file's values afterwards.")
    if number(count) != 2:
        raise Wrong(f"{story}, two tensors are filled, and it returns {number(count):.4g}.")

    for variables, saved, story in (
        ({}, weights(1.0, "a", "b"), "there is no variable yet: nothing was there to fill, nothing was filled"),
        (weights(0.0, "a", "b"), weights(1.0, "a"), "a variable is not in the file: it would stay random"),
        (weights(0.0, "a"), weights(1.0, "a", "b"), "the file has a tensor that no variable took"),
        (weights(0.0, "a"), {"a": torch.ones(4)}, "a tensor of the file has another shape: `copy_` repeats it to fit"),
    ):
        try:
            returned = answer(variables, saved)
        except ValueError:
            continue
        except Exception as error:  # whatever a student's function raises is the answer's, and is told
            said = f"{type(error).__name__}: {error}"
            raise Wrong(f"{story}. Your function stops with {said:.80}; a ValueError is asked for.") from error
        raise Wrong(f"{story}. Your function returns {returned!r:.40} and raises nothing.")


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
        "code for it. That is why `probe` computes one.",
        "b": "it says nothing about memory, and another program may hold most of it. `probe` reads the free bytes.",
        "c": "yes. A small product on the device is a cheap proof, and `probe` asks for it before it believes.",
        "d": "no: a model lies where it was loaded to, and in PyTorch that is the CPU until something moves it.",
    },
    right="c",
)
