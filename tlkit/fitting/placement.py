"""What a device can hold, and bringing a model there."""

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from tlkit.devices import Device, probe
from tlkit.examples import Batch, shape_of
from tlkit.fitting.estimate import estimate_memory
from tlkit.fitting.trace import CannotEstimate
from tlkit.memory import VirtualDevice, in_units, move_weights
from tlkit.quantization import tensors_of
from tlkit.settings import Plan

COUNT_THEIR_PEAK = ("cuda", "xpu")


def memory_for(model: torch.nn.Module, device: Device | VirtualDevice) -> int:
    """Bytes that a step may use on `device`: what is free now, and what the model itself holds there already."""
    if isinstance(device, VirtualDevice):
        return device.budget
    held = sum(p.nbytes for p in model.parameters() if p.device.type == device.kind)
    return probe(device.kind).free_memory + held


def refuse_what_the_host_cannot_hold(model: torch.nn.Module, batch: Batch, plan: Plan) -> None:
    """Refuse a training on the host for which its memory is too small: no exception would come, only the end.

    Args:
        model: what is trained. One whose step cannot be estimated is not refused.
        batch: the blocks of one optimizer step, shape (blocks, tokens), or examples.
        plan: where it leaves the step on the device, nothing is refused.

    Raises:
        MemoryError: with numbers.
    """
    if not plan.train_on_host:
        return
    there = replace(plan, train_on_host=False, evaluate_on_host=False)
    try:
        needed = estimate_memory(model, **shape_of(batch), plan=there).resident
    except CannotEstimate:
        return
    free = memory_for(model, probe("cpu"))
    if needed > free:
        raise MemoryError(
            f"training on the host needs {in_units(needed)} and {in_units(free)} of its memory are free: use a "
            "strategy with less to train, a smaller model, or shorter blocks"
        )


def device_context(device: Device | VirtualDevice) -> AbstractContextManager:
    """A context in which a virtual device counts, and only once; a real device needs none."""
    return device if isinstance(device, VirtualDevice) and not device.active else nullcontext()


def move_to_device(model: torch.nn.Module, device: Device | VirtualDevice) -> None:
    """Bring the model to the device."""
    if isinstance(device, VirtualDevice):
        device.hold(tensors_of(model))
    elif next(model.parameters()).device.type != device.kind:
        move_weights(model, device.torch)


def reset_peak(device: Device | VirtualDevice) -> None:
    """Count the peak of `device` from now on."""
    if isinstance(device, VirtualDevice):
        device.peak = device.current
    elif device.kind in COUNT_THEIR_PEAK:
        torch.get_device_module(device.kind).reset_peak_memory_stats()


def peak_of(device: Device | VirtualDevice) -> float:
    """Most bytes held on `device` since `reset_peak`; NaN where they are not counted."""
    if isinstance(device, VirtualDevice):
        return device.peak
    if device.kind in COUNT_THEIR_PEAK:
        return torch.get_device_module(device.kind).max_memory_allocated()
    return math.nan
