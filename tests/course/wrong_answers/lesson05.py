"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

from tlkit.models.parts import find_blocks


def first_parameter(model):
    if model.get_input_embeddings().weight.requires_grad:
        return "embedding"
    return next(n for n, block in enumerate(find_blocks(model)) if next(block.parameters()).requires_grad)


def whole_blocks(model):
    if model.get_input_embeddings().weight.requires_grad:
        return "embedding"
    blocks = enumerate(find_blocks(model))
    return next(n for n, block in blocks if all(p.requires_grad for p in block.parameters()))


def by_text(model):
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if any("embed_tokens" in name for name in trained):
        return "embedding"
    return next(n for n in range(24) if any(f".{n}" in name for name in trained))


def by_name_of_ours(model):
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    if any("embed_tokens" in name for name in trained):
        return "embedding"
    return next(n for n in range(24) if any(f"layers.{n}." in name for name in trained))


def blocks_only(model):
    blocks = enumerate(find_blocks(model))
    return next((n for n, block in blocks if any(p.requires_grad for p in block.parameters())), "embedding")


def nothing_above(model):
    if model.get_input_embeddings().weight.requires_grad:
        return "embedding"
    for number, block in enumerate(find_blocks(model)):
        if any(p.requires_grad for p in block.parameters()):
            return number


def number_above(model):
    found = nothing_above(model)
    return len(find_blocks(model)) if found is None else found


def two_ends(model):
    return "embedding" if model.get_input_embeddings().weight.requires_grad else "top"


def lowest_frozen(model):
    if model.get_input_embeddings().weight.requires_grad:
        return "embedding"
    blocks = enumerate(find_blocks(model))
    return next(n for n, block in blocks if not any(p.requires_grad for p in block.parameters()))


def name_of_the_lowest(model):
    return next(name for name, parameter in model.named_parameters() if parameter.requires_grad)


def lowest(trained, embedding):
    return 0 if embedding else trained.index(True)


WRONG = {
    "ex05_1": [
        (0.7283, "percent are asked for"),
        (27.17, "what is saved"),
        (63.78, "their own 4 bytes stay"),
        (50, "not half the values"),
        (62.5, "Half the blocks are not half the values"),
        (5.757, "that is in GB"),
        (36.22, "the share of frozen values"),
        ("73%", "a number is asked for"),
        (80, "80 is not it"),
    ],
    "ex05_2": [
        (lambda trained, embedding: sum(trained) / len(trained), "frozen blocks were taken to cost nothing"),
        (
            lambda trained, embedding: (len(trained) + 2 * sum(trained)) / len(trained) / 3,
            "passes through frozen blocks, too",
        ),
        (lambda trained, embedding: (2 * len(trained) + sum(trained)) / len(trained) / 3, "goes on to the bottom"),
        (lambda t, e: (2 * len(t) - t.index(True) + sum(t)) / len(t) / 3, "stops at a block here, and something below"),
        (
            lambda t, e: (2 * len(t) - lowest(t, e) - (not e) + sum(t)) / len(t) / 3,
            "the lowest trained block needs the gradient",
        ),
        (lambda t, e: 100 * (2 * len(t) - lowest(t, e) + sum(t)) / len(t) / 3, "that is in percent"),
        (lambda t, e: 2 * len(t) - lowest(t, e) + sum(t), "the number of units"),
        (lambda t, e: (len(t) - lowest(t, e) + sum(t)) / len(t) / 3, "the forward pass is left out"),
        (lambda t, e: (2 * len(t) - lowest(t, e)) / len(t) / 3, "own weights are left out"),
        (lambda t, e: 1 - (2 * len(t) - lowest(t, e) + sum(t)) / len(t) / 3, "what is saved"),
        (lambda t, e: 5 / 6, "blocks 3 and 7 of 8 trained, nothing else, it gives 0.8333."),
        (0.83, "a function is asked for"),
    ],
    "ex05_3": [
        (first_parameter, "was all of it looked at"),
        (whole_blocks, "was all of it looked at"),
        (by_text, "nothing in that block is trained"),
        (by_name_of_ours, "a GPT-2"),
        (blocks_only, "the embedding lies below that and is trained"),
        (lowest_frozen, "nothing in that block is trained"),
        (name_of_the_lowest, 'expected "embedding", the number of a block'),
        (nothing_above, "only the final norm is trained"),
        (number_above, 'No block is trained here, so "top"'),
        (two_ends, "a block below is trained"),
    ],
}
