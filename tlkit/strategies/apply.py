"""From a model as it was loaded to one that trains what a strategy says."""

from dataclasses import replace

from torch import nn

from tlkit.models.adapters import adapter_names, class_head, in_four_bits, original_module_of, refuse_all_but_continuing
from tlkit.models.groups import groups_of
from tlkit.strategies.adapter_probe import check_adapter_takes_part, left_unpacked, passed_over
from tlkit.strategies.peft_methods import ALL
from tlkit.strategies.plugins import call_strategy
from tlkit.strategies.registry import FAMILIES, check_strategy
from tlkit.strategies.report import StrategyReport, describe


def apply_strategy(model: nn.Module, strategy: str, **options) -> StrategyReport:
    """Make a model trainable the way a strategy says; `report.model` is what to train from here on.

    An adapter that `load_model(…, adapter="continue")` brought is trained on by the strategy that made it; any other
    model that holds an adapter is refused, for a second strategy would lose it or train beside it.

    Args:
        model: as loaded; it is changed.
        options: those of the strategy (`blocks=` for last_layers, `r=` for lora, …); an adapter that is continued takes
            none.

    Returns:
        What is trainable now, or will be in the course of the training; in its `doubts` also what a pass over a few
        tokens has shown of an adapter.

    Raises:
        ValueError: for an unknown strategy or option and for an adapter in the way, before anything is frozen; where
            the architecture does not allow the strategy, which for an adapter a pass over a few tokens shows, and
            when nothing, or by accident everything, was selected: then load the model anew.
    """
    check_strategy(strategy, options)
    if added := adapter_names(model):
        refuse_all_but_continuing(model, strategy, options)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in added)
        return describe(model, strategy)
    if FAMILIES[strategy] in ("classic", "in time") and in_four_bits(model):
        raise ValueError(
            f"{strategy} trains the weights themselves, and these are packed in 4 bits: choose lora or qlora"
        )
    model.requires_grad_(False)
    vars(model).pop("parameter_groups", None)  # of a strategy before
    adapted = call_strategy(strategy, model, options)
    adapted = model if adapted is None else adapted
    if not isinstance(adapted, nn.Module):
        raise ValueError(
            f"{strategy} returned a {type(adapted).__name__}: expected the model, peft's wrapper around it, or nothing"
        )
    if adapter_names(adapted) and not hasattr(adapted, "get_base_model"):
        raise ValueError(f"{strategy} put an adapter into the model: expected it to return peft's wrapper around it")
    for parameter in _new_head(adapted):  # nothing has made it yet, so every strategy trains it
        parameter.requires_grad_(True)
    report = describe(adapted, strategy)
    if report.trainable_values == 0:
        raise ValueError(f"{strategy} selected no weights of {type(model).__name__}")
    alike = len({(group.rate, group.begins) for group in groups_of(adapted)}) == 1
    if strategy != "full" and report.trainable_values == report.total_values and alike:
        raise ValueError(f"{strategy} selected every weight of {type(model).__name__}: that is `full`")
    if not adapter_names(adapted):
        return report
    observations = check_adapter_takes_part(adapted, strategy)
    everywhere = FAMILIES[strategy] == "peft" and options.get("targets", ALL) == ALL
    if everywhere and adapted.peft_config["default"].peft_type in ("LORA", "VERA", "OFT"):
        observations = (*passed_over(adapted), *observations)
    if in_four_bits(adapted):
        observations = (*left_unpacked(adapted), *observations)
    return replace(report, observations=observations)


def _new_head(model: nn.Module) -> list[nn.Parameter]:
    """The head of a classifier, or peft's copy of it."""
    replaced = {
        id(p) for m in model.modules() if (original := original_module_of(m)) is not None for p in original.parameters()
    }
    return [parameter for parameter in class_head(model) if id(parameter) not in replaced]
