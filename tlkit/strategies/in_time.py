"""Strategies that train everything, but not from the first step, or not at one rate.

Source: Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification (ULMFiT).
"""

from torch import nn

from tlkit.models.groups import ParameterGroup, set_groups
from tlkit.models.parts import find_blocks
from tlkit.strategies.registry import strategy


@strategy("gradual_unfreezing", family="in time")
def gradual_unfreezing(model: nn.Module, phases: int = 4) -> nn.Module:
    """From the head down: a further share of the blocks with each phase, the embedding with the last one.

    All phases are equally long. A head that is tied to the embedding waits for it.
    """
    levels = _levels(model)
    if not 2 <= phases <= len(levels):
        raise ValueError(f"gradual_unfreezing(phases={phases}): expected 2 to {len(levels)} for this model")
    # Level 0 is the highest, and belongs to the first phase; the lowest one to the last.
    of = [number * phases // len(levels) for number in range(len(levels))]
    set_groups(
        model.requires_grad_(True),
        [
            ParameterGroup(
                frozenset().union(*(names for names, its in zip(levels, of, strict=True) if its == phase)),
                begins=phase / phases,
            )
            for phase in range(phases)
        ],
    )
    return model


@strategy("discriminative_rates", family="in time")
def discriminative_rates(model: nn.Module, lowest: float = 0.1) -> nn.Module:
    """Everything, at rates that fall by the same factor from one block to the next below it.

    The head learns at the rate of the run, the embedding at `lowest` times that.
    """
    if not 0 < lowest < 1:
        raise ValueError(f"discriminative_rates(lowest={lowest}): expected a multiple of the rate between 0 and 1")
    levels = _levels(model.requires_grad_(True))
    steps = len(levels) - 1
    set_groups(model, [ParameterGroup(names, rate=lowest ** (number / steps)) for number, names in enumerate(levels)])
    return model


def _levels(model: nn.Module) -> list[frozenset[str]]:
    """The names of a model's weights from the top: head and final norm, the blocks from the last on, the embedding."""
    blocks = find_blocks(model)
    places = {id(p): depth for depth, block in enumerate(blocks, 1) for p in block.parameters()}
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            places |= {id(p): 0 for p in module.parameters() if id(p) not in places}
    depth_of = {name: places.get(id(p), len(blocks) + 1) for name, p in model.named_parameters()}
    levels = [
        frozenset(name for name, its in depth_of.items() if its == depth) for depth in range(len(blocks) + 1, -1, -1)
    ]
    return [level for level in levels if level]
