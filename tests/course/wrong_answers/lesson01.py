"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

import torch
from safetensors import safe_open


def counts(model, path):
    with safe_open(path, "pt") as file:
        return sum(file.get_tensor(name).float().equal(weights) for name, weights in model.named_parameters())


def the_same(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, weights in model.named_parameters() if file.get_tensor(name).float().equal(weights)]


def never_missing(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, weights in model.named_parameters() if not file.get_tensor(name).float().equal(weights)]


def only_missing(model, path):
    with safe_open(path, "pt") as file:
        return [name for name, _ in model.named_parameters() if name not in file.keys()]  # noqa: SIM118


def sums(model, path):
    with safe_open(path, "pt") as file:
        return [n for n, weights in model.named_parameters() if not file.get_tensor(n).float().sum().eq(weights.sum())]


def every_name(model, path):
    return [name for name, _ in model.named_parameters()]


def as_published(variables, saved):
    for name, tensor in variables.items():
        tensor.copy_(saved[name])
    return len(variables)


def one_way(variables, saved):
    if not variables or not all(name in saved for name in variables):
        raise ValueError("not all variables are in the file")
    return as_published(variables, saved)


def no_variables_only(variables, saved):
    if not variables:
        raise ValueError("nothing to fill")
    return as_published(variables, saved)


def names_only(variables, saved):
    if variables.keys() != saved.keys():
        raise ValueError("names differ")
    return as_published(variables, saved)


def new_tensors(variables, saved):
    if variables.keys() != saved.keys():
        raise ValueError("names differ")
    variables.update(saved)
    return len(variables)


def checks_only(variables, saved):
    if variables.keys() != saved.keys():
        raise ValueError("names differ")
    return len(variables)


def counts_values(variables, saved):
    as_published(variables, saved)
    return sum(tensor.numel() for tensor in variables.values())


def objects_compared(variables, saved):
    if not all(torch.equal(variables[name], saved[name]) for name in variables):
        raise ValueError("other values")
    return len(variables)


WRONG = {
    "ex01_1": [
        (151_936 / 387_789, "the other way round"),
        (387_789 - 151_936, "a factor is asked for"),
        (155.2, "by how many percent"),
        (250_072 / 151_936, "the factor of the other run"),
        (387_789 / 4096, "the vocabulary of the bundled model"),
        (151_936, "the perplexity of uniform guessing"),
        ("2.55", "a number is asked for"),
        (3, "3 is not it"),
    ],
    "ex01_2": [
        (counts, "a list of names is asked for"),
        (the_same, "those that did come from it"),
        (never_missing, "File does not contain tensor"),
        (only_missing, "need not have the same values"),
        (sums, "sums and shapes can agree"),
        (every_name, "those that did come from it"),
        (lambda model, path: [list(model.parameters())[0]], "one of them is a Parameter"),
        (lambda model, path: ["model.safetensors"], "no parameter has that name"),
        (lambda model: [], "stopped with TypeError"),
    ],
    "ex01_3": [
        (as_published, "there is no variable yet"),
        (no_variables_only, "stops with KeyError"),
        (one_way, "that no variable took"),
        (names_only, "another shape"),
        (new_tensors, "the model still has its old ones"),
        (checks_only, "do not have the file's values"),
        (counts_values, "two tensors are filled, and it returns 24"),
        (objects_compared, "it refuses: other values"),
    ],
}
