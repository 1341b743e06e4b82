"""What peft adds to a model, told from the model's own weights; and what a model is, with or without it."""

from torch import nn

from tlkit.settings import Plan


def base_model(model: nn.Module) -> nn.Module:
    """The transformers model, also where peft has wrapped it."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def classifies(model: nn.Module) -> bool:
    """Whether a model puts a text into a class, instead of going on with it."""
    return type(base_model(model)).__name__.endswith("ForSequenceClassification")


def class_count(model: nn.Module) -> int | None:
    """How many classes a classifier tells apart; None for a causal language model."""
    return base_model(model).config.num_labels if classifies(model) else None


def class_head(model: nn.Module) -> list[nn.Parameter]:
    """The weights of a classifier that no pretraining has made, peft's copy of them included; else none."""
    base = base_model(model)
    if not classifies(model):
        return []
    below = _identities(getattr(base, base.base_model_prefix))
    return [parameter for parameter in base.parameters() if id(parameter) not in below]


def adapter_names(model: nn.Module) -> frozenset[str]:
    """The names of the parameters that peft has added, by whatever method: all that is beside the modules it wraps."""
    added = _identities(model) - _identities(base_model(model))
    for module in model.modules():
        if (wrapped := original_module_of(module)) is not None:
            added |= _identities(module) - _identities(wrapped)
    return frozenset(name for name, parameter in model.named_parameters() if id(parameter) in added)


def original_module_of(module: nn.Module) -> nn.Module | None:
    """The model's own module that a module of peft stands in for; None for one that is no adapter's."""
    # peft's two ways: a layer in `base_layer` with weights beside it, or a copy trained in the place of a module.
    # By attribute, torch would write an error message for every other module, which are nearly all.
    return module._modules.get("base_layer") or module._modules.get("original_module")


def in_four_bits(model: nn.Module) -> bool:
    """True where the base model has 4-bit layers: by `quantize_linear_layers`, or as it was published."""
    return getattr(base_model(model), "is_loaded_in_4bit", False)


def refuse_all_but_continuing(model: nn.Module, strategy: str, options: dict) -> None:
    """Refuse to lose the adapter that a model holds, or to train it otherwise than it was made, with a ValueError.

    One that was loaded to be trained on (`adapter="continue"`) is an adapter of LoRA's kind that is not frozen.
    """
    config, added = getattr(model, "peft_config", {}).get("default"), adapter_names(model)
    not_frozen = any(parameter.requires_grad for name, parameter in model.named_parameters() if name in added)
    continues = config is not None and config.peft_type == "LORA" and not_frozen
    made_by = _made_by(model) if continues else "the strategy that made it"
    if continues and strategy != made_by:
        raise ValueError(
            f"{strategy}: the adapter counts as trained with {made_by} (its files say no more): continue it with that, "
            "or merge it"
        )
    if not continues or options:
        raise ValueError(
            f"{strategy}: this model holds an adapter already. Load its folder with adapter='merge' to make it part of "
            f"the weights, for any strategy, or with adapter='continue' to train it on with {made_by}, without options"
        )


def _made_by(model: nn.Module) -> str:
    """The strategy that makes an adapter like the one of this model, which is of LoRA's kind."""
    config = model.peft_config["default"]
    if in_four_bits(model):
        return "qlora"
    if str(config.init_lora_weights).startswith("pissa"):
        return "pissa"
    return "dora" if config.use_dora else "rslora" if config.use_rslora else "lora"


def learns_prompt(model: nn.Module) -> bool:
    """True where an adapter puts vectors of its own before whatever the model reads."""
    return any(config.is_prompt_learning for config in getattr(model, "peft_config", {}).values())


def learns_prefix(model: nn.Module) -> bool:
    """True where an adapter hands each block keys and values of its own."""
    return any(config.peft_type == "PREFIX_TUNING" for config in getattr(model, "peft_config", {}).values())


def refuse_plan(model: nn.Module, plan: Plan) -> None:
    """Refuse, with a ValueError, a way to carry out a step in which an adapter would be left out.

    peft puts a learned prompt or prefix before what the model reads, where a chunked loss does not look. Blocks that
    are computed again in the backward pass take no keys and values from elsewhere.
    """
    if plan.chunked_loss and learns_prompt(model):
        raise ValueError("chunked_loss leaves out a prompt or prefix that was learned: expected a plan without")
    if plan.activation_checkpointing and learns_prefix(model):
        raise ValueError("activation checkpointing leaves out what prefix_tuning has learned: expected a plan without")


def _identities(module: nn.Module) -> set[int]:
    return {id(parameter) for parameter in module.parameters()}
