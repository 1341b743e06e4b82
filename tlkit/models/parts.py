"""Where things are in a transformers model, how much it reads at once, and a pass through it to look at it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import torch
from torch import nn

from tlkit.models.adapters import base_model


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """Find the transformer blocks: the ModuleList of the decoder that is as long as the configuration says.

    Raises:
        ValueError: naming the architecture, where there is no such list, or where the parts of the blocks are in
            several lists side by side.
    """
    config = model.config.get_text_config(decoder=True)
    # Where both are there, the general name stands for the encoder's.
    depth = getattr(config, "decoder_layers", None) or getattr(config, "num_hidden_layers", None)
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    places = [decoder] if decoder is not None else []
    if not getattr(model.config, "is_encoder_decoder", False):
        places.append(model)  # where a part of another kind has the decoder's name
    for module in (module for place in places for module in place.modules()):
        # Blocks have parts: a list of as many single layers is something else.
        lists = [m for m in module.children() if isinstance(m, nn.ModuleList) and len(m) == depth > 0]
        lists = [blocks for blocks in lists if any(blocks[0].children())]
        if len(lists) == 1:
            return lists[0]
        if lists:  # side by side: each has a part of every block
            break
    raise ValueError(f"{type(model).__name__} is not supported: it has no single list of its {depth} decoder blocks")


def is_tied(model: nn.Module) -> bool:
    """True where the head is the token embedding, used a second time."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


def trainable_parameters(model: nn.Module) -> list[torch.nn.Parameter]:
    """What an optimizer should be given: nothing that is frozen."""
    return [p for p in model.parameters() if p.requires_grad]


class ParameterGroup(NamedTuple):
    """Trainable weights that learn at another rate than the run's, or begin later.

    Attributes:
        names: of the tensors, as in `model.named_parameters()`.
        rate: their learning rate, as a multiple of the run's.
        begins: the share of the run's steps after which they are trained; until then they are frozen.
    """

    names: frozenset[str]
    rate: float = 1.0
    begins: float = 0.0


class TrainedGroup(NamedTuple):
    """The weights of a group."""

    parameters: list[nn.Parameter]
    rate: float = 1.0
    begins: float = 0.0


def trained_groups(model: nn.Module, groups: Sequence[ParameterGroup]) -> list[TrainedGroup]:
    """What is trainable in a model, group by group in the order given; weights in none of them come first."""
    left = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    trained = [
        TrainedGroup([left.pop(name) for name in list(left) if name in group.names], group.rate, group.begins)
        for group in groups
    ]
    return [group for group in (TrainedGroup(list(left.values())), *trained) if group.parameters]


def set_embeddings(model: nn.Module, trainable: bool) -> None:
    """Token embeddings, and position embeddings where the model learns them."""
    blocks = find_blocks(model)
    inside = {id(module) for module in blocks.modules()}
    for module in model.modules():
        if isinstance(module, nn.Embedding) and id(module) not in inside:
            module.requires_grad_(trainable)


def is_norm(module: nn.Module) -> bool:
    """By class, never by the name that the module has in its parent."""
    kind = type(module).__name__
    if isinstance(module, nn.LayerNorm | nn.RMSNorm) or kind.endswith(("RMSNorm", "LayerNorm")):
        return True
    # Such as MambaRMSNormGated; a module with parts of its own only has a norm among them.
    return ("RMSNorm" in kind or "LayerNorm" in kind) and not any(module.children())


def longest_input(model: nn.Module) -> int | None:
    """The most tokens that a model reads at once, by its configuration; None without a limit (ALiBi, recurrence)."""
    configs = getattr(model, "peft_config", {}).values()
    before = sum(config.num_virtual_tokens for config in configs if config.is_prompt_learning)
    limit = _positions(base_model(model))
    return None if limit is None else limit - before


def _positions(model: nn.Module) -> int | None:
    config = model.config.get_text_config()
    if getattr(config, "alibi", False) or hasattr(model.base_model, "build_alibi_tensor"):
        return None
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    limits = (getattr(config, name, None) for name in names)
    limit = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            return module.num_embeddings - module.padding_idx - 1  # RoBERTa counts positions from behind the padding
    return limit


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Inside, the model is in training or in evaluation mode (no dropout); afterwards each module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes:
            module.training = before


def evaluation_mode(model: nn.Module) -> AbstractContextManager[None]:
    """`mode` for looking at a model."""
    return mode(model, training=False)


@torch.no_grad()
def logits_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits in fp32, without dropout."""
    with evaluation_mode(model):
        return model(input_ids=ids, use_cache=False).logits.float()


def largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """How far any logit moved, in standard deviations of the logits before."""
    change = torch.where(before == after, 0.0, before - after).abs().max()
    return float(change / before[before.isfinite()].std()) if change else 0.0


def rounding(model: nn.Module) -> float:
    """The largest change of a logit that another order of sums explains, in standard deviations of all logits."""
    # A hundred times what mixtures of experts show in fp32; in half precision, half of its digits.
    precision = torch.finfo(model.dtype).eps
    return 1e-4 if precision < 1e-4 else precision**0.5
