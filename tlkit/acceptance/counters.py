"""A real device's own memory: what its driver counts, and a limit that its allocator refuses to pass."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tlkit.devices import Device

# What torch sets on Apple devices where nothing else is said, as a share of what the system recommends.
APPLE_LIMIT = 1.7


def held(device: Device) -> int:
    """Bytes of tensors that are on a real device now, by the count of its allocator."""
    if device.kind == "mps":
        return torch.mps.current_allocated_memory()
    return torch.get_device_module(device.kind).memory_allocated()


def reserved(device: Device) -> int:
    """Bytes that torch has taken from the driver of a real device, for tensors and to have them at hand."""
    if device.kind == "mps":
        return torch.mps.driver_allocated_memory()
    return torch.get_device_module(device.kind).memory_reserved()


def give_back(kind: str) -> None:
    """Drop what nobody refers to any more, and give what torch keeps at hand back to the driver.

    Args:
        kind: of the device, one of `KINDS`.
    """
    gc.collect()
    if kind != "cpu":
        torch.get_device_module(kind).empty_cache()


@contextmanager
def peak_counted(device: Device) -> Iterator[Callable[[], int]]:
    """Yield what says the most bytes of tensors that a real device held since the beginning of the block.

    CUDA and XPU keep such a counter. Apple devices say only what is held now, so they are asked after each operation;
    what an operation takes and returns inside itself is not seen there.
    """
    if device.kind == "mps":
        with AskedAfterEach(torch.mps.current_allocated_memory) as asked:
            yield lambda: asked.most
        return
    module = torch.get_device_module(device.kind)
    module.reset_peak_memory_stats()
    yield module.max_memory_allocated


class AskedAfterEach(TorchDispatchMode):
    """Asks for a number after each operation, and keeps the largest.

    Args:
        read: says the number now.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        super().__init__()
        self.read, self.most = read, read()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **kwargs or {})
        self.most = max(self.most, self.read())
        return result


def can_be_limited(device: Device) -> bool:
    """Whether this torch can set a limit to the memory of a real device; for XPU, only newer ones can."""
    return hasattr(torch.get_device_module(device.kind), "set_per_process_memory_fraction")


@contextmanager
def limited(device: Device, most: int) -> Iterator[None]:
    """Inside, the allocator of a real device refuses to take more than `most` bytes from the driver.

    It refuses in the words and by the path of a full device. Nothing is filled for it, so a screen or another program
    on the same device goes on.

    Args:
        device: for which `can_be_limited`.
        most: bytes, counted as `reserved` counts them.
    """
    module = torch.get_device_module(device.kind)
    if device.kind == "mps":
        total, before = torch.mps.recommended_max_memory(), _limit_of_apple()
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


def _limit_of_apple() -> float:
    """As it was set when torch began; there is nothing that says it."""
    return float(os.environ.get("PYTORCH_MPS_HIGH_WATERMARK_RATIO") or APPLE_LIMIT)
