"""What students answer instead, and a part of what they are told. Each is a mistake with a reason behind it."""

from tlkit.models.parts import find_blocks


def _mlps(choose, returned=lambda model: model, part=lambda block: block.mlp):
    """A strategy that trains a part of the blocks that `choose` leaves of them."""

    def apply(model):
        for block in choose(find_blocks(model)):
            part(block).requires_grad_(True)
        return returned(model)

    return apply


def _by_name(model):
    for name, tensor in model.named_parameters():
        tensor.requires_grad_(".mlp." in name)
    return model


def _and_the_norm(model):
    model = _mlps(lambda blocks: blocks[len(blocks) // 2 :])(model)
    for name, tensor in model.named_parameters():
        if name.endswith(("model.norm.weight", "ln_f.weight")):
            tensor.requires_grad_(True)
    return model


WRONG = {
    "ex11_1": [
        (2, "counted from 0; the step"),
        (3, "counted from 1; the step"),
        (50, "counted from the bottom"),
        (101, "steps are counted from 0"),
        (112, "round down before"),
        (150, "the last phase"),
        (0, "only the highest quarter"),
        (77, "is none of them"),
    ],
    "ex11_2": [
        (_by_name, "is in the lower half"),
        (_mlps(lambda blocks: blocks[: len(blocks) // 2]), "the lower half of the blocks is trained"),
        (_mlps(lambda blocks: blocks[-(len(blocks) // 2) :]), "stays frozen"),
        (_mlps(lambda blocks: blocks[len(blocks) // 2 :], part=lambda block: block), "no part of an MLP"),
        (_mlps(lambda blocks: blocks[len(blocks) // 2 :], returned=lambda model: 3), "the model is to be returned"),
        (_mlps(lambda blocks: []), "nothing is trained"),
        (_and_the_norm, "which is in no block"),
    ],
    "ex11_3": [
        (75, "without the cache"),
        (37.5, "what is saved; what remains"),
        (25, "saved without the cache"),
        (0.625, "in percent"),
        (50, "the last phase trains all"),
        (100, "only the last phase"),
        (90, "costs 3 for each block"),
    ],
}
