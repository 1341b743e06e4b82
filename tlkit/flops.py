"""The arithmetic of a training step, counted while one is done; no weight changes."""

import math
import sys
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from tlkit.steps import Plan, accumulate_gradients


@dataclass(frozen=True)
class StepFlops:
    """Floating-point operations of matrix products, a multiplication and an addition counted as two."""

    forward: int
    backward: int

    @property
    def total(self) -> int:
        return self.forward + self.backward


def count_flops(model: torch.nn.Module, blocks: torch.Tensor) -> StepFlops:
    """Forward and backward pass over `blocks`, shape (blocks, tokens), with what is trainable now.

    Norms, activations and the optimizer are left out: they take time, but next to no arithmetic. Weights and
    gradients are afterwards as they were.
    """
    kept = [parameter.grad for parameter in model.parameters()]
    formulas = _formulas()
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as forward:
        model(input_ids=blocks, use_cache=False)
    with FlopCounterMode(display=False, custom_mapping=formulas) as both:
        accumulate_gradients(model, blocks, Plan())
    for parameter, gradient in zip(model.parameters(), kept, strict=True):
        parameter.grad = gradient
    return StepFlops(forward.get_total_flops(), both.get_total_flops() - forward.get_total_flops())


def _formulas() -> dict:
    """Torch knows its own products; bitsandbytes adds one of unpacked 4-bit weights, where it is in use."""
    if "bitsandbytes" not in sys.modules:
        return {}
    return {torch.ops.bitsandbytes.gemm_4bit: lambda x, packed, shape, *rest, **_: 2 * math.prod((*x, shape[0]))}
