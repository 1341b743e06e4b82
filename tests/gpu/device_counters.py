"""A real device's own memory: what its driver counts, and a limit that its allocator refuses to pass."""

import gc
import os
from contextlib import contextmanager

import torch

# What torch sets on Apple devices where nothing else is said, as a share of what the system recommends.
APPLE_LIMIT = 1.7


def held(device):
    """Bytes of tensors that are on the device, once all that nobody refers to is gone."""
    give_back(device.kind)
    module = torch.get_device_module(device.kind)
    return module.current_allocated_memory() if device.kind == "mps" else module.memory_allocated()


def reserved(device):
    """Bytes that torch has taken from the driver, for tensors and to have them at hand."""
    module = torch.get_device_module(device.kind)
    return module.driver_allocated_memory() if device.kind == "mps" else module.memory_reserved()


def give_back(kind):
    """Drop what nobody refers to any more, and give what torch keeps at hand back to the driver."""
    gc.collect()
    if kind != "cpu":
        torch.get_device_module(kind).empty_cache()


@contextmanager
def limited(device, most):
    """Inside, the allocator refuses to take more than `most` bytes from the driver, as `reserved` counts them.

    It refuses in the words and by the path of a full device. Nothing is filled for it, so a screen or another program
    on the same device goes on.
    """
    module = torch.get_device_module(device.kind)
    if device.kind == "mps":  # nothing says what is set there now: as it was when torch began
        total = torch.mps.recommended_max_memory()
        before = float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO") or APPLE_LIMIT)
    else:
        total = module.get_device_properties().total_memory
        before = getattr(module, "get_per_process_memory_fraction", lambda: 1.0)()
    give_back(device.kind)
    module.set_per_process_memory_fraction(min(most / total, 1.0))
    try:
        yield
    finally:
        give_back(device.kind)
        module.set_per_process_memory_fraction(before)
