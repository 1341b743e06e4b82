"""The arithmetic of a training step, counted while one is done; no weight changes."""

import math
import sys
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.utils import flop_counter
from torch.utils.flop_counter import FlopCounterMode


@dataclass(frozen=True)
class StepFlops:
    """Floating-point operations of the matrix products of a step.

    A multiplication and an addition count as two.

    Args:
        forward: of the forward pass.
        backward: of the backward pass.
    """

    forward: int
    backward: int

    @property
    def total(self) -> int:
        """Operations of both passes."""
        return self.forward + self.backward


def count_flops(model: torch.nn.Module, blocks: torch.Tensor) -> StepFlops:
    """Count the arithmetic of a forward and a backward pass, with what is trainable now.

    Norms, activations and the optimizer are left out, because they take time but hardly any arithmetic. Weights and
    gradients are afterwards as they were. On the meta device only shapes are computed, so a model of any size can be
    counted.

    Args:
        model: a transformers model, also with adapters, also in 4 bits.
        blocks: token ids, shape (blocks, tokens).

    Returns:
        Operations of the forward and of the backward pass.
    """
    blocks = blocks.to(next(model.parameters()).device)
    kept = [parameter.grad for parameter in model.parameters()]
    formulas = _formulas()
    # transformers looks into its input for several sequences in one row, where ours never are; a meta tensor has
    # nothing to look at.
    with patch("transformers.masking_utils.find_packed_sequence_indices", return_value=None):
        with FlopCounterMode(display=False, custom_mapping=formulas) as forward:
            loss = model(input_ids=blocks, labels=blocks, use_cache=False).loss
        with FlopCounterMode(display=False, custom_mapping=formulas) as backward:
            loss.backward()
    for parameter, gradient in zip(model.parameters(), kept, strict=True):
        parameter.grad = gradient
    return StepFlops(forward.get_total_flops(), backward.get_total_flops())


def _formulas() -> dict:
    """What torch's counter does not know: attention on processors, and the product with unpacked 4-bit weights."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu

    # Where several heads of queries share keys and values, each has a product of its own: as many as queries' heads.
    def as_many(queries: torch.Size, keys: torch.Size) -> tuple[int, ...]:
        return *queries[:2], *keys[2:]

    known = {
        attention: lambda q, k, v, *_, **__: flop_counter.sdpa_flop_count(q, as_many(q, k), as_many(q, v)),
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda gradient, q, k, v, *_, **__: flop_counter.sdpa_backward_flop_count(
                gradient, q, as_many(q, k), as_many(q, v)
            )
        ),
    }
    if "bitsandbytes" in sys.modules:
        known[torch.ops.bitsandbytes.gemm_4bit] = lambda x, packed, shape, *rest, **_: 2 * math.prod((*x, shape[0]))
    return known
