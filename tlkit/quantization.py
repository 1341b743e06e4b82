"""Weights in 4 bits (NF4 with double quantisation), through bitsandbytes, which is optional."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

BLOCK = 64  # weights that share a scale; the scales are quantised again, in blocks of 256


def quantize_linear_layers(blocks: nn.ModuleList) -> None:
    """Put 4-bit layers in place of all linear ones of the blocks. Source: Dettmers et al. 2023, QLoRA."""
    bitsandbytes = _bitsandbytes()
    linear = [(name, module) for name, module in blocks.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError("this architecture has no linear layers in its blocks to quantise")
    for name, old in linear:
        if isinstance(old, bitsandbytes.nn.Linear4bit):
            continue
        new = bitsandbytes.nn.Linear4bit(
            old.in_features, old.out_features, False, old.weight.dtype, quant_type="nf4", device="meta"
        )
        form = {"blocksize": BLOCK, "quant_type": "nf4"}
        packed, state = bitsandbytes.functional.quantize_4bit(old.weight.data, compress_statistics=True, **form)
        new.weight = bitsandbytes.nn.Params4bit(packed, quant_state=state, bnb_quantized=True, module=new, **form)
        new.bias, new.quant_state = old.bias, state
        # On processors with AVX512-BF16 an evaluation would repack the weights for inference, for good: the next
        # training would send no gradient through them.
        new.support_avx512bf16_for_cpu = False
        blocks.set_submodule(name, new)


def restore_linear_layers(blocks: nn.ModuleList) -> None:
    """Put linear layers in place of 4-bit ones, with the weights that these compute with."""
    for name, old in list(blocks.named_modules()):
        if getattr(old, "quant_state", None) is not None:
            new = nn.Linear(old.in_features, old.out_features, bias=False, device="meta")
            new.weight, new.bias = nn.Parameter(dequantized(old.weight).to(old.compute_dtype)), old.bias
            blocks.set_submodule(name, new)


def four_bit_config(kind: type) -> type:
    """A configuration of peft whose file also says that the base is in 4 bits."""

    @dataclass
    class FourBitConfig(kind):
        base_quantization: str = "nf4"

    return FourBitConfig


def tensors_of(model: nn.Module) -> Iterator[torch.Tensor]:
    """Parameters, buffers, and the scales without which 4-bit weights cannot be read."""
    yield from model.parameters()
    yield from model.buffers()
    for parameter in model.parameters():
        state = getattr(parameter, "quant_state", None)
        while state is not None:
            yield from (tensor for tensor in (state.absmax, state.code, state.offset) if tensor is not None)
            state = state.state2  # of the scales


def logical_size(parameter: nn.Parameter) -> int:
    """How many weights a tensor stands for; packed in 4 bits it has half as many elements."""
    state = getattr(parameter, "quant_state", None)
    return parameter.numel() if state is None else math.prod(state.shape)


def dequantized(parameter: nn.Parameter) -> torch.Tensor:
    """The weights that a tensor stands for, packed or not."""
    state = getattr(parameter, "quant_state", None)
    return parameter.detach() if state is None else _bitsandbytes().functional.dequantize_4bit(parameter.data, state)


def _bitsandbytes():
    try:
        import bitsandbytes
    except ImportError as error:
        way = "`python -m pip install bitsandbytes`, or choose lora"
        raise ValueError(f"4-bit weights need the package bitsandbytes ({error}): {way}") from error
    with _disable_current_modes():
        # It keeps the first table of scales that it makes: never one that a trace made without contents.
        bitsandbytes.functional.quantize_4bit(torch.zeros(BLOCK), blocksize=BLOCK, compress_statistics=True)
    return bitsandbytes
