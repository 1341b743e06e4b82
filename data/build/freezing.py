"""Two strategies that lesson 7 compares and tlkit has no name for: a plugin of `compare`."""

import tlkit as tl


def _last(model, blocks):
    model.requires_grad_(False)
    for block in tl.find_blocks(model)[-blocks:]:
        block.requires_grad_(True)
    return model


@tl.strategy("last_blocks")
def last_blocks(model):
    """The last two blocks, and no norm outside them."""
    return _last(model, 2)


@tl.strategy("upper_half")
def upper_half(model):
    """The upper half of the blocks and the final norm; the embedding is frozen with the lower half."""
    model = _last(model, len(tl.find_blocks(model)) // 2)
    model.get_decoder().norm.requires_grad_(True)
    return model
