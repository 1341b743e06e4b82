"""What students answer instead, and a part of what they are told, where the judge has no table of mistakes."""

from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy


def _by_name(model, blocks):
    depth = model.config.num_hidden_layers
    for name, tensor in model.named_parameters():
        last = any(f".{n}." in name for n in range(depth - blocks, depth))
        tensor.requires_grad_(last or "norm" in name)
    return model


def _without_freezing(model, blocks):
    find_blocks(model)[-blocks:].requires_grad_(True)
    return model


def _without_the_norm(model, blocks):
    model.requires_grad_(False)
    find_blocks(model)[-blocks:].requires_grad_(True)
    return model


def _freeze_the_lower(model, blocks):
    find_blocks(model)[:-blocks].requires_grad_(False)
    return model


def _a_llama_only(model, blocks):
    model.requires_grad_(False)
    model.model.layers[-blocks:].requires_grad_(True)
    model.model.norm.requires_grad_(True)
    return model


WRONG = {
    "ex07_1": [
        (_by_name, "as in the published run"),
        (_without_freezing, "everything trains"),
        (_without_the_norm, "the final norm does not train"),
        (_freeze_the_lower, "this trains as well"),
        (_a_llama_only, "your function stopped with AttributeError"),
        (lambda model, blocks: apply_strategy(model, "last_layers", blocks=blocks), "the model is to be returned"),
        (lambda model, blocks: find_blocks(model)[-blocks:], "this is ModuleList"),
    ],
    "ex05_1": [
        (lambda first, second: "q.A", "a list of names is asked for"),
        (lambda first, second: list(first.values()), "something in the list that is no name"),
    ],
    "ex06_1": [
        (lambda x, *layer: x, "the result has the shape"),
    ],
    "ex08_1": [
        (lambda adapted, tokens: adapted, "2 numbers are asked for"),
    ],
}
