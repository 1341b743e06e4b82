"""Strategies that train the model's own weights: which of them, from which step on, and at which rate."""

from torch import nn

from tlkit.models.parts import ParameterGroup, classifies, find_blocks, is_norm
from tlkit.strategies.registry import strategy


@strategy("full", family="classic")
def full(model: nn.Module) -> nn.Module:
    """Every weight."""
    return model.requires_grad_(True)


@strategy("freeze_lower", family="classic")
def freeze_lower(model: nn.Module, freeze_embeddings: bool = False) -> None:
    """The lower half of the blocks stays as pretrained; with the embeddings frozen, too, they need no backward pass."""
    blocks = find_blocks(model)
    model.requires_grad_(True)
    for block in blocks[: len(blocks) // 2]:
        block.requires_grad_(False)
    if freeze_embeddings:
        _freeze_embeddings(model)


@strategy("freeze_embeddings", family="classic")
def freeze_embeddings(model: nn.Module) -> None:
    """Where the head is tied to the embedding, it is frozen with it."""
    _freeze_embeddings(model.requires_grad_(True))


@strategy("last_layers", family="classic")
def last_layers(model: nn.Module, blocks: int = 2, train_norms: bool = True, train_head: bool = False) -> None:
    """The last blocks, by default with every norm of the model, as the published experiment had it."""
    layers = find_blocks(model)
    if not 1 <= blocks <= len(layers):
        raise ValueError(f"last_layers(blocks={blocks}): expected 1 to {len(layers)} for this model")
    norms = [module for module in model.modules() if is_norm(module)] if train_norms else []
    head = [model.get_output_embeddings()] if train_head else []
    for module in (*layers[-blocks:], *norms, *head):
        module.requires_grad_(True)


@strategy("linear_probe", family="head")
def linear_probe(model: nn.Module) -> None:
    """Nothing but a classifier's new head, which every strategy trains: every text keeps the same features."""
    if not classifies(model):
        raise ValueError(f"linear_probe trains a new head alone, and {type(model).__name__} has none: classify with it")


@strategy("bitfit", family="classic")
def bitfit(model: nn.Module) -> None:
    """Bias vectors only. Source: Ben Zaken et al. 2022, BitFit."""
    # Mixtures keep those of their experts in parameters of their own, called gate_up_proj_bias and the like.
    biases = [p for name, p in model.named_parameters() if name.endswith((".bias", "_bias"))]
    if not biases:
        raise ValueError(f"bitfit selected no weights of {type(model).__name__}: this architecture has no bias vectors")
    for bias in biases:
        bias.requires_grad_(True)


# Both schedules are of Howard and Ruder 2018, Universal Language Model Fine-tuning for Text Classification (ULMFiT).
@strategy("gradual_unfreezing", family="in time")
def gradual_unfreezing(model: nn.Module, phases: int = 4) -> tuple[nn.Module, list[ParameterGroup]]:
    """From the head down: a further share of the blocks with each phase, the embedding with the last one.

    All phases are equally long. A head that is tied to the embedding waits for it.
    """
    levels = _levels(model.requires_grad_(True))
    if not 2 <= phases <= len(levels):
        raise ValueError(f"gradual_unfreezing(phases={phases}): expected 2 to {len(levels)} for this model")
    groups = []
    for phase in range(phases):
        chosen = [names for level, names in enumerate(levels) if level * phases // len(levels) == phase]
        groups.append(ParameterGroup(frozenset().union(*chosen), begins=phase / phases))
    return model, groups


@strategy("discriminative_rates", family="in time")
def discriminative_rates(model: nn.Module, lowest: float = 0.1) -> tuple[nn.Module, list[ParameterGroup]]:
    """Everything, at rates that fall by the same factor from one block to the next below it.

    The head learns at the rate of the run, the embedding at `lowest` times that.
    """
    if not 0 < lowest < 1:
        raise ValueError(f"discriminative_rates(lowest={lowest}): expected a multiple of the rate between 0 and 1")
    levels = _levels(model.requires_grad_(True))
    steps = len(levels) - 1
    return model, [ParameterGroup(names, rate=lowest ** (level / steps)) for level, names in enumerate(levels)]


def _freeze_embeddings(model: nn.Module) -> None:
    """Token embeddings, and position embeddings where the model learns them outside the blocks."""
    inside = {id(module) for module in find_blocks(model).modules()}
    for module in model.modules():
        if isinstance(module, nn.Embedding) and id(module) not in inside:
            module.requires_grad_(False)


def _levels(model: nn.Module) -> list[frozenset[str]]:
    """The names of a model's weights from the top: head and final norm, the blocks from the last on, the embedding."""
    blocks = find_blocks(model)
    depths = {id(p): 0 for m in model.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
    depths |= {id(p): depth for depth, block in enumerate(blocks, 1) for p in block.parameters()}
    names_at = [set() for _ in range(len(blocks) + 2)]
    for name, parameter in model.named_parameters():
        names_at[depths.get(id(parameter), len(blocks) + 1)].add(name)
    return [frozenset(names) for names in reversed(names_at) if names]
