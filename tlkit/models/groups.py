"""Weights that training treats alike: by how much they learn, and from when on."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from torch import nn


@dataclass(frozen=True)
class ParameterGroup:
    """Trainable weights with a learning rate and a beginning of their own.

    Attributes:
        names: of the tensors, as in `model.named_parameters()`.
        rate: their learning rate, as a multiple of the run's.
        begins: the share of the run's steps after which they are trained; until then they are frozen.
    """

    names: frozenset[str]
    rate: float = 1.0
    begins: float = 0.0

    def __post_init__(self):
        if not self.rate > 0 or not 0 <= self.begins < 1:
            raise ValueError(
                f"a group with rate={self.rate} and begins={self.begins}: expected a rate above 0, and a beginning "
                "from 0 to below 1"
            )


class TrainedGroup(NamedTuple):
    """The weights of a group."""

    parameters: list[nn.Parameter]
    rate: float = 1.0
    begins: float = 0.0


def set_groups(model: nn.Module, groups: Iterable[ParameterGroup]) -> None:
    """Say which trainable weights of a model learn faster or later than others; the training loop asks.

    Args:
        model: with what is ever to be trained set to `requires_grad`. Trainable weights in no group are trained from
            the first step at the rate of the run.
        groups: each names some of them.

    Raises:
        ValueError: for a weight in two groups or in none of the model, and where nothing would be trained in the first
            step.
    """
    groups, there = tuple(groups), {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    named = Counter(name for group in groups for name in group.names)
    if wrong := [name for name, count in named.items() if count > 1 or name not in there]:
        raise ValueError(f"{min(wrong)} is in a group of parameters: expected trainable weights, each in one group")
    if set(named) == there and all(group.begins for group in groups):
        raise ValueError("no group of parameters begins at 0: nothing would be trained in the first step")
    model.parameter_groups = groups


def groups_of(model: nn.Module) -> list[TrainedGroup]:
    """What is trainable in a model, group by group in the order given; weights in none of them come first."""
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    groups = [
        TrainedGroup([trainable.pop(name) for name in list(trainable) if name in group.names], group.rate, group.begins)
        for group in getattr(model, "parameter_groups", ())
    ]
    return [group for group in (TrainedGroup(list(trainable.values())), *groups) if group.parameters]


def in_phases(model: nn.Module) -> bool:
    """True where some weights begin to be trained later than others."""
    return any(group.begins for group in getattr(model, "parameter_groups", ()))
