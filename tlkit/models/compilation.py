"""A model's blocks, compiled by torch: what lies between two matrix products becomes one pass over memory."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

WAY_ON = "leave compiled_blocks out"


@contextmanager
def compiled(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Inside, blocks are computed by code that torch makes for them when they are first called, which takes seconds.

    Their weights stay where they are, and so do all modules. Results are the same up to rounding, and random numbers
    are the same. Blocks are computed as usual where tensors are counted (on a virtual card, in an estimate, and in the
    step in which `train` measures memory), because compiled code does not pass by the counter. So a run that is broken
    off and resumed may differ by rounding, too.

    Args:
        blocks: modules that are called one after the other; those that are alike share one compiled program.

    Raises:
        ValueError: where torch cannot compile what is in a block.
    """
    from torch._dynamo.exc import TorchDynamoException

    counted = _get_current_dispatch_mode() is not None
    chosen = [block for block in blocks if not counted and "forward" not in vars(block)]
    try:
        for block in chosen:
            block.forward = torch.compile(block.forward, options={"fallback_random": True})
        yield
    except TorchDynamoException as error:
        raise ValueError(
            f"compiled_blocks: torch cannot compile these blocks: {_in_a_line(error)}: {WAY_ON}"
        ) from error
    finally:
        for block in chosen:
            del block.forward


def refuse_without_compiler(device: torch.device) -> None:
    """Ask torch to compile one addition, once for each kind of device.

    Args:
        device: where training takes place.

    Raises:
        ValueError: where it cannot, as without a C++ compiler.
    """
    reason = _why_not(device.type)
    if reason:
        raise ValueError(
            f"compiled_blocks: torch cannot compile on {device.type} here: {reason}: install what is missing (a C++ "
            f"compiler such as g++, on a GPU Triton), or {WAY_ON}"
        )


@cache
def _why_not(kind: str) -> str:
    from torch._dynamo.exc import TorchDynamoException  # with it comes the whole compiler, which takes seconds to load

    try:
        torch.compile(lambda x: x + 1)(torch.zeros(2, device=kind))
    except (TorchDynamoException, RuntimeError, OSError, ImportError) as error:
        return _in_a_line(error)
    return ""


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).strip().split("\n\n")[0].split())[:200].rstrip(" .")
