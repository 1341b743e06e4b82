"""What a strategy selects in a model."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import nn

from tlkit.models import parts
from tlkit.quantization import logical_size
from tlkit.strategies.methods import ALL
from tlkit.strategies.registry import FAMILIES, STRATEGIES, USER, Groups, check_strategy, line_in


class Component(NamedTuple):
    """A part of a model, in parameters and tensors."""

    trainable_parameters: int = 0
    total_parameters: int = 0
    trainable_tensors: int = 0
    total_tensors: int = 0


@dataclass(frozen=True)
class StrategyReport:
    """What a strategy left trainable."""

    strategy: str
    model: nn.Module
    trainable_parameters: int
    total_parameters: int
    trainable_tensors: int
    total_tensors: int
    components: dict[str, Component]  # embedding, block 0, …, head, adapters
    tied: str
    trainable: frozenset[str] = field(repr=False)  # names of the tensors
    groups: tuple[parts.ParameterGroup, ...] = ()  # what learns faster than the rest, or begins later
    doubts: tuple[str, ...] = ()  # what was passed over

    @property
    def percent(self) -> float:
        return 100 * self.trainable_parameters / self.total_parameters

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {self.trainable_parameters:,} of {self.total_parameters:,} parameters trainable "
            f"({self.percent:.2f}%), in {self.trainable_tensors} of {self.total_tensors} tensors. {self.tied}"
        )


def describe(model: nn.Module, strategy: str = "as it is") -> StrategyReport:
    """Count what is trainable now, per component; tied tensors are counted once."""
    base = parts.base_model(model)
    owners, components, trainable = component_of(base), {}, set()
    for name, parameter in model.named_parameters():
        owner, size, trains = owners.get(id(parameter), "adapters"), logical_size(parameter), parameter.requires_grad
        sums = zip(components.get(owner, Component()), (size * trains, size, int(trains), 1), strict=True)
        components[owner] = Component(*map(sum, sums))
        if trains:
            trainable.add(name)
    if "adapters" in components:  # beside all blocks, and named after them
        components["adapters"] = components.pop("adapters")
    totals = Component(*map(sum, zip(*components.values(), strict=True)))
    tied = "The head has weights of its own."
    if parts.is_tied(base):
        tied = "The head is tied to the token embedding: one tensor, frozen or trained together."
    return StrategyReport(strategy, model, *totals, components, tied, frozenset(trainable))


def component_of(model: nn.Module) -> dict[int, str]:
    """Of each weight that is no adapter's, by identity, the component that it belongs to."""
    head = model.get_output_embeddings()
    places = [] if head is None else [("head", head)]
    places += [(f"block {number}", block) for number, block in enumerate(parts.find_blocks(model))]
    places += [("embedding", module) for module in model.modules() if isinstance(module, nn.Embedding)]
    owners = dict.fromkeys(map(id, model.parameters()), "final norm and others")
    for name, place in places:  # a head that is tied to the embedding belongs to that
        owners |= dict.fromkeys(map(id, place.parameters()), name)
    owners |= dict.fromkeys(map(id, parts.class_head(model)), "head")
    added = parts.adapter_names(model)
    adapters = {id(parameter) for name, parameter in model.named_parameters() if name in added}
    return {key: owner for key, owner in owners.items() if owner == "head" or key not in adapters}


def apply_strategy(model: nn.Module, strategy: str, **options) -> StrategyReport:
    """Make a model trainable the way a strategy says.

    Args:
        model: as loaded; it is changed. After a ValueError, load it anew.
        options: those of the strategy (`blocks=` for last_layers, `r=` for lora, …); none where an adapter is trained
            on, which `load_model(…, adapter="continue")` brought.

    Returns:
        What is trainable, or will be in the course of the training; `report.model` is what to train.
    """
    check_strategy(strategy, options)
    if added := parts.adapter_names(model):
        _refuse_another_adapter(model, added, strategy, options)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in added)
        return describe(model, strategy)
    if FAMILIES[strategy] == "weights" and parts.in_four_bits(model):
        raise ValueError(f"{strategy} trains weights that are here packed in 4 bits: choose lora or qlora")
    model.requires_grad_(False)
    adapted, groups = _call_strategy(model, strategy, options)
    replaced = _replaced(adapted)
    for parameter in parts.class_head(adapted):  # it is new: every strategy trains it, or peft's copy of it
        parameter.requires_grad_(id(parameter) not in replaced)
    everywhere = FAMILIES[strategy] == "peft" and options.get("targets") in (None, ALL)
    report = replace(describe(adapted, strategy), groups=groups, doubts=_passed_over(adapted, everywhere))
    if report.trainable_parameters == 0:
        raise ValueError(f"{strategy} selected no weights of {type(model).__name__}")
    parts.trained_groups(adapted, groups)  # refuses groups that cannot be trained as they say
    if strategy != "full" and report.trainable_parameters == report.total_parameters and not groups:
        raise ValueError(f"{strategy} selected every weight of {type(model).__name__}: that is `full`")
    return report


def _replaced(adapted: nn.Module) -> set[int]:
    """The identities of weights in modules that peft has wrapped or copied."""
    originals = filter(None, map(parts.original_module_of, adapted.modules()))
    return {id(parameter) for module in originals for parameter in module.parameters()}


def _refuse_another_adapter(model: nn.Module, added: frozenset[str], strategy: str, options: dict) -> None:
    trains = any(model.get_parameter(name).requires_grad for name in added)
    config = getattr(model, "peft_config", {}).get("default")
    if not trains or config is None or config.peft_type != "LORA":
        raise ValueError(f"{strategy}: this model holds an adapter: load it with adapter='merge' or adapter='continue'")
    made_by = "dora" if config.use_dora else "rslora" if config.use_rslora else "lora"
    if parts.in_four_bits(model):
        made_by = "qlora"
    elif str(config.init_lora_weights).startswith("pissa"):
        made_by = "pissa"
    if strategy != made_by or options:
        raise ValueError(f"{strategy}: the adapter counts as trained with {made_by}: continue it so, without options")


def _call_strategy(model: nn.Module, strategy: str, options: dict[str, object]) -> tuple[nn.Module, Groups]:
    """The model, or peft's wrapper around it, and its groups, as the function of a strategy returns them."""
    try:
        adapted = STRATEGIES[strategy](model, **options)
    except Exception as error:
        added = FAMILIES[strategy] == USER and not isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not added and not isinstance(error, ValueError):
            raise
        place = f"{strategy}{line_in(error)}: {type(error).__name__}" if added else strategy
        raise ValueError(f"{place}: {' '.join(str(error).split())}") from error
    adapted, groups = adapted if isinstance(adapted, tuple) else (adapted, ())
    adapted = model if adapted is None else adapted
    if not isinstance(adapted, nn.Module):
        raise ValueError(f"{strategy} returned a {type(adapted).__name__}: expected the model or nothing")
    if parts.adapter_names(adapted) and not hasattr(adapted, "get_base_model"):
        raise ValueError(f"{strategy} put an adapter into the model: expected it to return peft's wrapper")
    return adapted, tuple(groups)


def _passed_over(adapted: nn.Module, everywhere: bool) -> tuple[str, ...]:
    """Doubts about matrices of the blocks, often of experts, that are not adapted or not packed in 4 bits."""
    added = {id(adapted.get_parameter(name)) for name in parts.adapter_names(adapted)}
    if not added:
        return ()
    blocks = parts.find_blocks(adapted.get_base_model())
    weights = {name: p for name, p in blocks.named_parameters() if id(p) not in added}
    matrices = {name: p for name, p in weights.items() if p.dim() > 1}
    total, doubts = sum(map(logical_size, weights.values())), []
    whole = {name: p.numel() for name, p in matrices.items() if logical_size(p) == p.numel()}
    if parts.in_four_bits(adapted) and whole:
        share = f"{sum(whole.values()) / total:.0%} of the blocks' values"
        doubts.append(f"{share} are not packed in 4 bits ({max(whole, key=whole.get)}, …)")
    replaced = _replaced(blocks)
    beside = {name: logical_size(p) for name, p in matrices.items() if id(p) not in replaced}
    if everywhere and beside and adapted.peft_config["default"].peft_type in ("LORA", "VERA", "OFT"):
        share = f"{sum(beside.values()):,} of the blocks' {total:,} values"
        doubts.append(f"peft puts no adapter beside {share} ({next(iter(beside))}, …)")
    return tuple(doubts)
