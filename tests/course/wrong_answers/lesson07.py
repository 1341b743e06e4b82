"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

from tlkit.models.parts import find_blocks
from tlkit.strategies import apply_strategy


def _names(report):
    return [name for name in report.components if name.startswith("block ")]


def _sum(report, names):
    return sum(report.components[name].trainable_values for name in names)


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


def _always_two(model, blocks):
    return apply_strategy(model, "last_layers", blocks=2, train_norms=False).model


def _a_llama_only(model, blocks):
    model.requires_grad_(False)
    model.model.layers[-blocks:].requires_grad_(True)
    model.model.norm.requires_grad_(True)
    return model


WRONG = {
    "ex07_1": [
        (41, "the number of vectors"),
        (45 * 2048, "the norms of the last two blocks, too"),
        (40 * 2048, "one norm is missing"),
        (21 * 2048, "more than one norm"),
        (40_320, "Qwen2-0.5B"),
        (1000, "1,000 is not it"),
    ],
    "ex07_2": [
        (lambda report, blocks: report.trainable_values, "the last blocks included"),
        (lambda report, blocks: 40_320, "your function returns 40,320"),
        (lambda report, blocks: _sum(report, _names(report)[-blocks:]), "elsewhere is asked for"),
        (lambda report, blocks: _sum(report, _names(report)[:-blocks]), "that is no block"),
        (
            lambda report, blocks: _sum(report, set(report.components) - set(sorted(_names(report))[-blocks:])),
            "as text",
        ),
        (lambda report, blocks: _sum(report, list(report.components)[:-blocks]), "not the last blocks"),
        (
            lambda report, blocks: sum(
                part.total_values for name, part in report.components.items() if name not in _names(report)[-blocks:]
            ),
            "counts frozen values",
        ),
    ],
    "ex07_3": [
        (_by_name, "as in the published run"),
        (_without_freezing, "everything trains"),
        (_without_the_norm, "the final norm does not train"),
        (_freeze_the_lower, "this trains as well"),
        (_always_two, "the final norm does not train"),
        (_a_llama_only, "your function stopped with AttributeError"),
        (lambda model, blocks: apply_strategy(model, "last_layers", blocks=blocks), "the model is to be returned"),
        (lambda model, blocks: find_blocks(model)[-blocks:], "this is ModuleList"),
    ],
}
