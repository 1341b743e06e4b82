"""A pass through a model, to look at it: in which mode it is, and how far its logits move."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

# What architectures raise that have no place for a mask of their caller or for positions.
NO_PLACE = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, KeyError)


@contextmanager
def mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Inside, the model is in training or in evaluation mode; afterwards each of its modules is as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, before in modes:
            module.training = before


def evaluation_mode(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, the model has no dropout; afterwards each of its modules is in the mode that it was in."""
    return mode(model, training=False)


@torch.no_grad()
def logits_of(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Logits in fp32, without dropout."""
    with evaluation_mode(model):
        return model(input_ids=ids, use_cache=False).logits.float()


def largest_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """How far any logit moved.

    Returns:
        In standard deviations of the logits before.
    """
    change = torch.where(before == after, 0.0, before - after).abs().max()
    return float(change / before[before.isfinite()].std()) if change else 0.0


def rounding(model: nn.Module) -> float:
    """The largest change of a logit that another order of sums explains, in standard deviations of all logits.

    Returns:
        A hundred times what mixtures of experts show in fp32; in half precision, half of its digits.
    """
    precision = torch.finfo(model.dtype).eps
    return 1e-4 if precision < 1e-4 else precision**0.5
