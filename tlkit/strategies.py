"""What is trainable: one registry of strategies, one report of what each really selected."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, get_args, get_origin

import torch
from torch import nn

from tlkit.adapters import adapter_names, add_lora, base_model, refuse_all_but_continuing
from tlkit.options import is_a
from tlkit.quantization import logical_size, quantize_linear_layers

Selector = Callable[..., nn.Module]


class Component(NamedTuple):
    """A part of a model, in values and in tensors."""

    trainable_values: int = 0
    total_values: int = 0
    trainable_tensors: int = 0
    total_tensors: int = 0


# What lies outside the blocks, as a sentence names it.
_OUTSIDE = {"embedding": "the embedding", "head": "the head", "final norm and others": "parts such as the final norm"}


@dataclass(frozen=True)
class StrategyReport:
    """What a strategy left trainable, in *values* (numbers) and in *tensors*; the reports confused the two."""

    strategy: str
    model: nn.Module
    trainable_values: int
    total_values: int
    trainable_tensors: int
    total_tensors: int
    components: dict[str, Component]  # embedding, block 0, block 1, …, head, adapters
    tied: str
    trainable: frozenset[str] = field(repr=False)  # names of the tensors

    @property
    def doubts(self) -> tuple[str, ...]:
        """What looks unlike a choice: layers matched by a piece of their name leave such traces."""
        blocks = {name: part for name, part in self.components.items() if name.startswith("block ")}
        whole = [name for name, part in blocks.items() if part.trainable_values == part.total_values]
        partly = {n: p for n, p in blocks.items() if 0 < p.trainable_values < p.total_values}
        trainable = any(part.trainable_values for part in blocks.values()) or "adapters" in self.components
        found = []
        if not trainable and self.trainable_values:
            places = [said for name, said in _OUTSIDE.items() if self.components.get(name, (0,))[0]]
            places = " and ".join(filter(None, [", ".join(places[:-1]), places[-1]]))
            found.append(f"no block is trainable, only {places}: was every block matched by accident?")
        if whole and partly:
            values = sum(part.trainable_values for part in partly.values())
            found.append(
                f"{len(whole)} blocks are trainable whole, {len(partly)} others in part ({values:,} values): "
                "were names matched that several layers share?"
            )
        return tuple(found)

    @property
    def percent(self) -> float:
        """Trainable values of all values, in percent."""
        return 100 * self.trainable_values / self.total_values

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {self.trainable_values:,} of {self.total_values:,} values trainable "
            f"({self.percent:.2f}%), in {self.trainable_tensors} of {self.total_tensors} tensors. {self.tied}"
        )


def apply_strategy(model: nn.Module, strategy: str, **options) -> StrategyReport:
    """Make a model trainable the way a strategy says; `report.model` is what to train from here on.

    An adapter that `load_model(…, adapter="continue")` brought is trained on by "lora" or "qlora"; any other model
    that holds an adapter is refused, for a second strategy would lose it or train beside it.

    Args:
        model: as loaded; it is changed.
        strategy: a name in `STRATEGIES`.
        options: those of the strategy (`blocks=` for last_layers, `r=` for lora, …); of an adapter that is continued,
            they must be what it was made with.

    Returns:
        What is trainable now.

    Raises:
        ValueError: for an unknown strategy or option and for an adapter in the way, before anything is frozen; and
            when nothing, or by accident everything, was selected.
    """
    check_strategy(strategy, options)
    if added := adapter_names(model):
        refuse_all_but_continuing(model, strategy, options)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in added)
        return describe(model, strategy)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    adapted = STRATEGIES[strategy](model, **options)
    report = describe(adapted, strategy)
    if report.trainable_values == 0:
        raise ValueError(f"{strategy} selected no weights of {type(model).__name__}{_why_nothing(strategy)}")
    if strategy != "full" and report.trainable_values == report.total_values:
        raise ValueError(f"{strategy} selected every weight of {type(model).__name__}: that is `full`")
    return report


def check_strategy(strategy: str, options: dict[str, object]) -> None:
    """Refuse an unknown strategy and options that it does not have, before there is a model.

    Args:
        strategy: a name of `STRATEGIES`.
        options: its options by name, with values as a Python caller or YAML gives them.

    Raises:
        ValueError: naming what was given and what was expected.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is unknown: expected one of {', '.join(STRATEGIES)}")
    known = dict(list(inspect.signature(OPTIONS.get(strategy, STRATEGIES[strategy])).parameters.items())[1:])
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(f"{strategy} has no option {', '.join(unknown)}: expected {', '.join(known) or 'none'}")
    for name, value in options.items():
        allowed = get_args(known[name].annotation) or (known[name].annotation,)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not finite or not any(is_a(get_origin(kind) or kind, value) for kind in allowed):
            words = " or ".join(kind.__name__ for kind in allowed)
            raise ValueError(f"{strategy}: {name}={value!r}: expected a value of type {words}")


def describe(model: nn.Module, strategy: str = "as it is") -> StrategyReport:
    """Count what is trainable now, per component; shared (tied) tensors are counted once.

    Args:
        model: a transformers model, or peft's wrapper.
        strategy: a name for the report.

    Returns:
        The counts.
    """
    parameters = list(model.named_parameters())  # named_parameters() already leaves out the second name of a tied one
    base = base_model(model)
    owners = _component_of(base)
    components: dict[str, Component] = {}
    for _, parameter in parameters:
        part, size, trains = owners.get(id(parameter), "adapters"), logical_size(parameter), parameter.requires_grad
        so_far = components.get(part, Component())
        components[part] = Component(*map(sum, zip(so_far, (size * trains, size, int(trains), 1), strict=True)))
    if "adapters" in components:  # beside all blocks, and named after them
        components["adapters"] = components.pop("adapters")
    totals = Component(*map(sum, zip(*components.values(), strict=True)))
    trainable = frozenset(name for name, parameter in parameters if parameter.requires_grad)
    return StrategyReport(strategy, model, *totals, components, _tying_in_words(base), trainable)


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


def _train(*modules: nn.Module) -> None:
    for module in modules:
        module.requires_grad_(True)


def _full(model: nn.Module) -> nn.Module:
    _train(model)
    return model


def _freeze_lower(model: nn.Module, freeze_embeddings: bool = False) -> nn.Module:
    """The lower half of the blocks stays as pretrained."""
    blocks = find_blocks(model)
    _train(model)
    for block in blocks[: len(blocks) // 2]:
        block.requires_grad_(False)
    if freeze_embeddings:
        _embedding_parameters(model, trainable=False)
    return model


def _freeze_embeddings(model: nn.Module) -> nn.Module:
    """Where the head is tied to the embedding, it is frozen with it."""
    _train(model)
    _embedding_parameters(model, trainable=False)
    return model


def _last_layers(model: nn.Module, blocks: int = 2, train_norms: bool = True, train_head: bool = False) -> nn.Module:
    """The last blocks, by default with every norm of the model, as the published experiment had it."""
    layers = find_blocks(model)
    if not 1 <= blocks <= len(layers):
        raise ValueError(f"last_layers(blocks={blocks}): expected 1 to {len(layers)} for this model")
    _train(*layers[-blocks:])
    if train_norms:
        _train(*(m for m in model.modules() if _is_norm(m)))
    if train_head:
        _train(model.get_output_embeddings())
    return model


def _bitfit(model: nn.Module) -> nn.Module:
    """Bias vectors only. Source: Ben Zaken et al. 2022, BitFit."""
    for module in model.modules():
        bias = getattr(module, "bias", None)
        if isinstance(bias, nn.Parameter):
            bias.requires_grad_(True)
    return model


def _qlora(model: nn.Module, **options) -> nn.Module:
    """LoRA beside blocks whose linear layers are kept in 4 bits; options as for lora. Source: Dettmers et al. 2023."""
    quantize_linear_layers(find_blocks(model), compute_dtype=model.dtype)
    model.is_loaded_in_4bit = True  # peft asks, and then makes the adapters that go with 4-bit layers
    return add_lora(model, **options)


STRATEGIES: dict[str, Selector] = {
    "full": _full,
    "freeze_lower": _freeze_lower,
    "freeze_embeddings": _freeze_embeddings,
    "last_layers": _last_layers,
    "lora": add_lora,
    "qlora": _qlora,
    "bitfit": _bitfit,
}

OPTIONS = {"qlora": add_lora}  # whose options it takes where not its own


def _embedding_parameters(model: nn.Module, trainable: bool) -> None:
    """Token embeddings, and position embeddings where the model learns them."""
    blocks = find_blocks(model)
    inside = {id(module) for module in blocks.modules()}
    for module in model.modules():
        if isinstance(module, nn.Embedding) and id(module) not in inside:
            module.requires_grad_(trainable)


def _is_norm(module: nn.Module) -> bool:
    """By class, never by the name that the module has in its parent."""
    return isinstance(module, nn.LayerNorm | nn.RMSNorm) or type(module).__name__.endswith(("RMSNorm", "LayerNorm"))


def _component_of(model: nn.Module) -> dict[int, str]:
    owners: dict[int, str] = {}
    for number, block in enumerate(find_blocks(model)):
        owners |= dict.fromkeys(map(id, block.parameters()), f"block {number}")
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            owners |= {id(p): "embedding" for p in module.parameters()}
    head = model.get_output_embeddings()
    if head is not None:
        for parameter in head.parameters():
            owners.setdefault(id(parameter), "head")
    added = adapter_names(model)
    for name, parameter in model.named_parameters():
        if name in added:
            owners.pop(id(parameter), None)
        else:
            owners.setdefault(id(parameter), "final norm and others")
    return owners


def _tying_in_words(model: nn.Module) -> str:
    if is_tied(model):
        return "The head is tied to the token embedding: one tensor, frozen or trained together."
    return "The head has weights of its own."


def _why_nothing(strategy: str) -> str:
    return ": this architecture has no bias vectors" if strategy == "bitfit" else ""
