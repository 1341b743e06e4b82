"""What peft adds to a model: how it is made, how it is told from the model's own weights, how it is continued."""

import torch
from torch import nn

from tlkit.quantization import four_bit_lora_config


def base_model(model: nn.Module) -> nn.Module:
    """The transformers model, also where peft has wrapped it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def adapter_names(model: nn.Module) -> frozenset[str]:
    """Find what peft has added to a model, by whatever method: all that is beside the modules it wraps.

    Args:
        model: a transformers model, or peft's wrapper.

    Returns:
        Names of parameters, as in `model.named_parameters()`.
    """
    added = _identities(model) - _identities(base_model(model))
    for module in model.modules():
        # peft's two ways: a layer in `base_layer` with weights beside it, or a copy trained in the place of a module.
        wrapped = getattr(module, "base_layer", None) or getattr(module, "original_module", None)
        if isinstance(wrapped, nn.Module):
            added |= _identities(module) - _identities(wrapped)
    return frozenset(name for name, parameter in model.named_parameters() if id(parameter) in added)


def continues_adapter(model: nn.Module) -> bool:
    """True where a trained adapter was loaded to be trained on: its weights are then where training starts from."""
    return getattr(model, "continues_adapter", False)


def add_lora(
    model: nn.Module, r: int = 8, alpha: int = 16, dropout: float = 0.0, targets: str | list[str] = "all-linear"
) -> nn.Module:
    """Put low-rank adapters beside linear layers, by peft.

    Args:
        model: a transformers model, in 4 bits or not; it is changed.
        r: the rank.
        alpha: adapters count alpha / r times.
        dropout: the share of an adapter's inputs that training leaves out.
        targets: names of the layers, or "all-linear" for all but the head.

    Returns:
        peft's wrapper around the model.

    Raises:
        ValueError: for an impossible rank, or where no layer has such a name.

    Source: Hu et al. 2021, LoRA.
    """
    from peft import LoraConfig, get_peft_model

    if r < 1:
        raise ValueError(f"lora(r={r}): expected a rank of at least 1")
    make = four_bit_lora_config if in_four_bits(model) else LoraConfig
    settings = make(r=r, lora_alpha=alpha, lora_dropout=dropout, target_modules=targets, task_type="CAUSAL_LM")
    adapted = get_peft_model(model, settings)
    adapted.peft_config["default"].base_model_name_or_path = None  # said when it is saved; till then peft asks the hub
    return adapted


def in_four_bits(model: nn.Module) -> bool:
    """True where `quantize_linear_layers` was used on the base model."""
    return getattr(base_model(model), "is_loaded_in_4bit", False)


def refuse_all_but_continuing(model: nn.Module, strategy: str, options: dict) -> None:
    """Refuse to lose the adapter that a model holds, or to train it otherwise than it was made.

    Args:
        model: with an adapter in it.
        strategy: what is asked for.
        options: of the strategy.

    Raises:
        ValueError: where the strategy does not continue this adapter.
    """
    if strategy not in ("lora", "qlora") or not continues_adapter(model):
        raise ValueError(
            f"{strategy}: this model holds an adapter already. Load its folder with adapter='merge' to make it part of "
            "the weights, for any strategy, or with adapter='continue' to train it on with lora or qlora"
        )
    made_by = "qlora" if in_four_bits(model) else "lora"
    if strategy != made_by:
        raise ValueError(f"{strategy}: the adapter was trained with {made_by}: continue it with that, or merge it")
    config = model.peft_config["default"]
    made = {"r": config.r, "alpha": config.lora_alpha, "dropout": config.lora_dropout}
    made["targets"] = sorted({name.rpartition(".")[2] for name in model.targeted_module_names})
    for option, given in options.items():
        same = _same_layers(model, given) if option == "targets" else given == made[option]
        if not same:
            raise ValueError(
                f"{strategy}({option}={given!r}): the adapter to be continued has {option}={made[option]!r}"
            )


def _same_layers(model: nn.Module, targets: str | list[str]) -> bool:
    """True where a new adapter with these targets would be in the layers where the trained one is."""
    from peft import LoraConfig, get_peft_model

    base = base_model(model)
    with torch.device("meta"):
        twin = get_peft_model(type(base)(base.config), LoraConfig(target_modules=targets, task_type="CAUSAL_LM"))
    return set(twin.targeted_module_names) == set(model.targeted_module_names)


def _identities(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}
