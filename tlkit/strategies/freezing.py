"""Strategies that choose among the model's own weights."""

from torch import nn

from tlkit.models.adapters import classifies
from tlkit.models.parts import find_blocks, is_norm, set_embeddings
from tlkit.strategies.registry import strategy


@strategy("full", family="classic")
def full(model: nn.Module) -> nn.Module:
    """Every weight."""
    return model.requires_grad_(True)


@strategy("freeze_lower", family="classic")
def freeze_lower(model: nn.Module, freeze_embeddings: bool = False) -> nn.Module:
    """The lower half of the blocks stays as pretrained."""
    blocks = find_blocks(model)
    model.requires_grad_(True)
    for block in blocks[: len(blocks) // 2]:
        block.requires_grad_(False)
    if freeze_embeddings:
        set_embeddings(model, trainable=False)
    return model


@strategy("freeze_embeddings", family="classic")
def freeze_embeddings(model: nn.Module) -> nn.Module:
    """Where the head is tied to the embedding, it is frozen with it."""
    set_embeddings(model.requires_grad_(True), trainable=False)
    return model


@strategy("last_layers", family="classic")
def last_layers(model: nn.Module, blocks: int = 2, train_norms: bool = True, train_head: bool = False) -> nn.Module:
    """The last blocks, by default with every norm of the model, as the published experiment had it."""
    layers = find_blocks(model)
    if not 1 <= blocks <= len(layers):
        raise ValueError(f"last_layers(blocks={blocks}): expected 1 to {len(layers)} for this model")
    norms = [module for module in model.modules() if is_norm(module)] if train_norms else []
    head = [model.get_output_embeddings()] if train_head else []
    for module in (*layers[-blocks:], *norms, *head):
        module.requires_grad_(True)
    return model


@strategy("linear_probe", family="head")
def linear_probe(model: nn.Module) -> nn.Module:
    """Nothing but a classifier's new head, so what is below it gives every text the same features in every step."""
    if not classifies(model):
        raise ValueError(f"linear_probe trains a new head alone, and {type(model).__name__} has none: classify with it")
    return model  # every strategy trains the new head


@strategy("bitfit", family="classic")
def bitfit(model: nn.Module) -> nn.Module:
    """Bias vectors only. Source: Ben Zaken et al. 2022, BitFit."""
    # Mixtures keep those of their experts in parameters of their own, called gate_up_proj_bias and the like.
    biases = [
        parameter
        for module in model.modules()
        for name, parameter in module.named_parameters(recurse=False)
        if name == "bias" or name.endswith("_bias")
    ]
    if not biases:
        raise ValueError(f"bitfit selected no weights of {type(model).__name__}: this architecture has no bias vectors")
    for bias in biases:
        bias.requires_grad_(True)
    return model
