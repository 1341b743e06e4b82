"""Between two models: going back part of the way against forgetting."""

import copy

import torch


def interpolate(base: torch.nn.Module, adapted: torch.nn.Module, share: float) -> torch.nn.Module:
    """Make a model whose weights lie between those of two others.

    Args:
        base: the model before training.
        adapted: the same architecture after training.
        share: how far to go from `base` (0) to `adapted` (1).

    Returns:
        A new model; the two given stay as they are.

    Raises:
        ValueError: for a share outside 0 to 1.

    Source:
        Wortsman et al. 2022, Robust fine-tuning of zero-shot models.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share={share}: expected 0 (the base) to 1 (the adapted model)")
    start, end = base.state_dict(), adapted.state_dict()
    between = copy.deepcopy(base)
    mixed = {name: torch.lerp(start[name], end[name], share) for name in start if start[name].is_floating_point()}
    between.load_state_dict(start | mixed)
    return between
