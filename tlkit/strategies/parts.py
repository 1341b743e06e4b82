"""Where things are in a transformers model: its blocks, its embeddings, its head."""

import torch
from torch import nn


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """Find the transformer blocks: the ModuleList of the decoder that is as long as the configuration says.

    Args:
        model: a transformers model.

    Returns:
        The blocks, the first one next to the embedding.

    Raises:
        ValueError: naming the architecture, where there is no such list.
    """
    depth = getattr(model.config, "num_hidden_layers", None)
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    for module in decoder.modules() if decoder is not None else ():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return module
    raise ValueError(f"{type(model).__name__} is not supported: no list of {depth} decoder blocks was found in it")


def is_tied(model: nn.Module) -> bool:
    """True where the head is the token embedding, used a second time."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def trainable_parameters(model: nn.Module) -> list[torch.nn.Parameter]:
    """What an optimizer should be given: nothing that is frozen."""
    return [p for p in model.parameters() if p.requires_grad]


def set_embeddings(model: nn.Module, trainable: bool) -> None:
    """Token embeddings, and position embeddings where the model learns them."""
    blocks = find_blocks(model)
    inside = {id(module) for module in blocks.modules()}
    for module in model.modules():
        if isinstance(module, nn.Embedding) and id(module) not in inside:
            module.requires_grad_(trainable)


def is_norm(module: nn.Module) -> bool:
    """By class, never by the name that the module has in its parent."""
    return isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module).__name__.endswith(("RMSNorm", "LayerNorm"))
