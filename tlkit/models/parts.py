"""What a transformers model is made of, with or without an adapter of peft."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from tlkit.settings import Plan


def base_model(model: nn.Module) -> nn.Module:
    """The transformers model, without peft's wrapper."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def classifies(model: nn.Module) -> bool:
    """Whether it names classes and predicts no tokens."""
    return type(base_model(model)).__name__.endswith("ForSequenceClassification")


def class_head(model: nn.Module) -> list[nn.Parameter]:
    """A classifier's weights that no pretraining has made, peft's copy included."""
    base = base_model(model)
    if not classifies(model):
        return []
    below = _identities(getattr(base, base.base_model_prefix))
    return [parameter for parameter in base.parameters() if id(parameter) not in below]


def find_blocks(model: nn.Module) -> nn.ModuleList:
    """The transformer blocks: the ModuleList of the decoder that is as long as the configuration says."""
    config = model.config.get_text_config(decoder=True)
    # Where both are there, the second is the encoder's.
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
    raise ValueError(f"{type(model).__name__} is not supported: expected a single list of its {depth} decoder blocks")


def is_tied(model: nn.Module) -> bool:
    """Whether head and token embedding are one tensor."""
    head = model.get_output_embeddings()
    return head is not None and head.weight is model.get_input_embeddings().weight


class ParameterGroup(NamedTuple):
    """Trainable weights that learn at another rate than the run's, or begin later."""

    names: frozenset[str]  # of the tensors, as in `model.named_parameters()`
    rate: float = 1.0  # a multiple of the run's learning rate
    begins: float = 0.0  # the share of the run's steps for which they are frozen


def trained_groups(model: nn.Module, groups: Sequence[ParameterGroup]) -> list[dict]:
    """What is trainable, as groups of an optimizer: "params", "rate", "begins". Weights in no group come first."""
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    named = Counter(name for group in groups for name in group.names)
    if wrong := [name for name, count in named.items() if count > 1 or name not in trainable]:
        raise ValueError(f"{min(wrong)} is in a group of parameters: expected trainable weights, each in one group")
    chosen = []
    for names, rate, begins in (ParameterGroup(frozenset(trainable.keys() - named.keys())), *groups):
        if not rate > 0 or not 0 <= begins < 1:
            raise ValueError(f"a group with {rate=} and {begins=}: expected a rate above 0, and 0 <= begins < 1")
        parameters = [parameter for name, parameter in trainable.items() if name in names]
        chosen.append({"params": parameters, "rate": rate, "begins": begins})
    chosen = [group for group in chosen if group["params"]]
    if chosen and all(group["begins"] for group in chosen):
        raise ValueError("no group of parameters begins at 0: nothing would be trained in the first step")
    return chosen


def longest_input(model: nn.Module) -> int | None:
    """The most tokens that a model reads at once; None without a limit (ALiBi, recurrence)."""
    base = base_model(model)
    config = base.config.get_text_config()
    if getattr(config, "alibi", False) or hasattr(base.base_model, "build_alibi_tensor"):
        return None
    names = ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len")
    limits = (getattr(config, name, None) for name in names)
    limit = next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
    for name, module in base.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding) and module.padding_idx is not None:
            limit = module.num_embeddings - module.padding_idx - 1  # RoBERTa counts positions from behind the padding
    learned = getattr(model, "peft_config", {}).values()
    before = sum(config.num_virtual_tokens for config in learned if config.is_prompt_learning)
    return None if limit is None else limit - before


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Inside, training or evaluation mode; afterwards each module is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes:
            module.training = before


evaluation_mode = partial(mode, training=False)


@torch.no_grad()
def logits_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits in evaluation mode, in fp32."""
    with evaluation_mode(model):
        return model(input_ids=ids, use_cache=False).logits.float()


def largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """How far any logit moved, in standard deviations of all."""
    change = torch.where(before == after, 0.0, before - after).abs().max()
    return float(change / before[before.isfinite()].std()) if change else 0.0


def rounding(model: nn.Module) -> float:
    """The `largest_change` that another order of sums explains."""
    # A hundred times what mixtures of experts show in fp32; in half precision, half of its digits.
    precision = torch.finfo(model.dtype).eps
    return 1e-4 if precision < 1e-4 else precision**0.5


def adapter_names(model: nn.Module) -> frozenset[str]:
    """All parameters beside the modules that peft wraps."""
    added = _identities(model) - _identities(base_model(model))
    for module in model.modules():
        if (wrapped := original_module_of(module)) is not None:
            added |= _identities(module) - _identities(wrapped)
    return frozenset(name for name, parameter in model.named_parameters() if id(parameter) in added)


def original_module_of(module: nn.Module) -> nn.Module | None:
    """What a module of peft stands in for; None for one that is no adapter's."""
    # peft's two ways: a layer in `base_layer` with weights beside it, or a copy trained in the place of a module.
    # By attribute, torch would write an error message for nearly every module.
    return module._modules.get("base_layer") or module._modules.get("original_module")


def in_four_bits(model: nn.Module) -> bool:
    """By `quantize_linear_layers`, or as the base model was published."""
    return getattr(base_model(model), "is_loaded_in_4bit", False)


def learns_prompt(model: nn.Module) -> bool:
    """Whether an adapter puts vectors of its own before what the model reads."""
    return any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values())


def learns_prefix(model: nn.Module) -> bool:
    """Whether an adapter hands each block keys and values of its own."""
    return any(config.peft_type == "PREFIX_TUNING" for config in getattr(model, "peft_config", {}).values())


def refuse_plan(model: nn.Module, plan: Plan) -> None:
    """Refuse a step in which an adapter would be left out."""
    if plan.chunked_loss and learns_prompt(model):
        raise ValueError("chunked_loss leaves out a prompt or prefix that was learned: expected a plan without")
    if plan.activation_checkpointing and learns_prefix(model):
        raise ValueError("activation checkpointing leaves out what prefix_tuning has learned: expected a plan without")


def _identities(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}
