"""What a strategy really selected: values and tensors, part by part."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn

from tlkit.models.parts import ParameterGroup, adapter_names, base_model, class_head, find_blocks, is_tied
from tlkit.quantization import logical_size


class Component(NamedTuple):
    """A part of a model, in values and in tensors."""

    trainable_values: int = 0
    total_values: int = 0
    trainable_tensors: int = 0
    total_tensors: int = 0


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
    groups: tuple[ParameterGroup, ...] = ()  # for `train`: what learns faster than the rest, or begins later
    doubts: tuple[str, ...] = ()  # what was passed over, or took no part in a pass with the adapter

    @property
    def percent(self) -> float:
        return 100 * self.trainable_values / self.total_values

    def __str__(self) -> str:
        return (
            f"{self.strategy}: {self.trainable_values:,} of {self.total_values:,} values trainable "
            f"({self.percent:.2f}%), in {self.trainable_tensors} of {self.total_tensors} tensors. {self.tied}"
        )


def describe(model: nn.Module, strategy: str = "as it is") -> StrategyReport:
    """Count what is trainable now, per component; shared (tied) tensors are counted once."""
    parameters = list(model.named_parameters())  # named_parameters() already leaves out the second name of a tied one
    base = base_model(model)
    owners = component_of(base)
    components: dict[str, Component] = {}
    for _, parameter in parameters:
        name, size, trains = owners.get(id(parameter), "adapters"), logical_size(parameter), parameter.requires_grad
        sums = zip(components.get(name, Component()), (size * trains, size, int(trains), 1), strict=True)
        components[name] = Component(*map(sum, sums))
    if "adapters" in components:  # beside all blocks, and named after them
        components["adapters"] = components.pop("adapters")
    totals = Component(*map(sum, zip(*components.values(), strict=True)))
    trainable = frozenset(name for name, parameter in parameters if parameter.requires_grad)
    one = "The head is tied to the token embedding: one tensor, frozen or trained together."
    tied = one if is_tied(base) else "The head has weights of its own."
    return StrategyReport(strategy, model, *totals, components, tied, trainable)


def component_of(model: nn.Module) -> dict[int, str]:
    """From the identity of each weight that is no adapter's to the component that it belongs to."""
    head = model.get_output_embeddings()
    parts = [] if head is None else [("head", head)]
    parts += [(f"block {number}", block) for number, block in enumerate(find_blocks(model))]
    parts += [("embedding", module) for module in model.modules() if isinstance(module, nn.Embedding)]
    owners = dict.fromkeys(map(id, model.parameters()), "final norm and others")
    for name, part in parts:  # a head that is tied to the embedding belongs to that
        owners |= dict.fromkeys(map(id, part.parameters()), name)
    owners |= dict.fromkeys(map(id, class_head(model)), "head")
    added = adapter_names(model)
    for name, parameter in model.named_parameters():
        if name in added and owners[id(parameter)] != "head":
            del owners[id(parameter)]
    return owners
