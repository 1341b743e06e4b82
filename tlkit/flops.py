"""The arithmetic of a training step, counted while one is done; no weight changes."""

import math
import sys
from dataclasses import dataclass

import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode

from tlkit.estimate import as_if_real, twin_of
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
    gradients are afterwards as they were. A model on the meta device is counted on paper.
    """
    if next(model.parameters()).is_meta:
        with as_if_real():
            return _count(twin_of(model), torch.zeros(blocks.shape, dtype=torch.long))
    kept = [parameter.grad for parameter in model.parameters()]
    counted = _count(model, blocks)
    for parameter, gradient in zip(model.parameters(), kept, strict=True):
        parameter.grad = gradient
    return counted


def _count(model: torch.nn.Module, blocks: torch.Tensor) -> StepFlops:
    formulas = _formulas()
    with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as forward:
        model(input_ids=blocks, use_cache=False)
    with FlopCounterMode(display=False, custom_mapping=formulas) as both:
        accumulate_gradients(model, blocks, Plan())
    return StepFlops(forward.get_total_flops(), both.get_total_flops() - forward.get_total_flops())


def speedup_warning(claimed: float, slow: StepFlops, fast: StepFlops) -> str | None:
    """Say so when a claimed speed-up is more than the arithmetic of two steps allows.

    Some of a difference is honest: a smaller optimizer, better use of caches. Twice the ratio is given for that.
    """
    ratio = slow.total / fast.total
    if claimed <= 2 * ratio:
        return None
    return (
        f"{claimed:g} times faster, where the arithmetic is {ratio:.1f} times less: one of the two runs was slowed "
        "down (memory paged to the host?), or the two did not do the same work"
    )


def _formulas() -> dict:
    """What torch's counter does not know: attention on processors, and the product with unpacked 4-bit weights."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    known = {
        attention: lambda q, k, v, *_, **__: flop_counter.sdpa_flop_count(q, k, v),
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda gradient, q, k, v, *_, **__: flop_counter.sdpa_backward_flop_count(gradient, q, k, v)
        ),
    }
    if "bitsandbytes" in sys.modules:
        known[torch.ops.bitsandbytes.gemm_4bit] = lambda x, packed, shape, *rest, **_: 2 * math.prod((*x, shape[0]))
    return known
